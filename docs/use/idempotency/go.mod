module github.com/lockstrategies/locks/docs/use/idempotency

go 1.25.0

require (
	github.com/lockstrategies/locks v0.0.0
	github.com/lockstrategies/locks/docs/use/fencing v0.0.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260226221140-a57be14db171
	google.golang.org/grpc v1.81.1
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/gofrs/uuid/v5 v5.5.1 // indirect
	github.com/gomodule/redigo v1.9.3 // indirect
	golang.org/x/net v0.51.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/text v0.34.0 // indirect
)

replace (
	github.com/lockstrategies/locks => ../../..
	github.com/lockstrategies/locks/docs/use/fencing => ../fencing
)

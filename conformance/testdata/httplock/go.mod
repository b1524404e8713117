module example.com/httplock

go 1.25.0

require github.com/lockstrategies/locks v0.0.0

require github.com/gofrs/uuid/v5 v5.5.1 // indirect

replace github.com/lockstrategies/locks => ../../..

package faults

// prevent says, by fault, what a reader can do so that it does not happen or does no harm. Faults that
// every strategy keeps through need nothing.
var prevent = map[string]string{
	"restart, nothing persisted":                   "`appendonly yes`",
	"power loss, fsync every second":               "`appendfsync always`, or `Options.Acks` with WAITAOF",
	"FLUSHALL":                                     "rights without `FLUSHALL` and `FLUSHDB`",
	"FLUSHALL, after a renewal":                    "rights without `FLUSHALL` and `FLUSHDB`",
	"eviction, volatile-lru":                       "`maxmemory-policy noeviction`: `Check` demands it",
	"eviction, allkeys-lru":                        "`maxmemory-policy noeviction`: `Check` demands it",
	"fail-over, write not replicated":              "`Options.Acks`, or `redlock`; fences",
	"fail-over, old primary goes on":               "`Options.Acks`, or `min-replicas-to-write 1`; fences",
	"server down":                                  "`redlock`; `RetryOnError` to wait for the server",
	"minority down":                                "`redlock`",
	"majority down":                                "five servers, in different places",
	"server frozen, lock free":                     "`redlock`",
	"server frozen past the TTL":                   "a TTL longer than a server is ever paused",
	"out of memory":                                "memory to spare, and an alert",
	"ACL: DEL is denied":                           "the rights of [security](../run/security.md); `Check` at the start",
	"ACL: writing is denied":                       "the rights of [security](../run/security.md); `Check` at the start",
	"key of another type":                          "a key prefix that only locks use",
	"lock overwritten":                             "a key prefix that only locks use",
	"primary turned into a replica":                "Sentinel or a cluster client, which follow the primary",
	"too few replicas (min-replicas-to-write)":     "one replica more than the setting needs",
	"acquire: reply late":                          "a TTL of many round trips",
	"release: request lost":                        "a short TTL: the others wait for it",
	"partition of the holder":                      "nothing; stop the work when the lease's context ends",
	"server out of reach: refused":                 "`redlock`; `RetryOnError` to wait for the server",
	"server out of reach: silent":                  "`redlock`; `RetryOnError` to wait for the server",
	"server hears, and cannot answer":              "`redlock`",
	"slow server":                                  "an `OpTimeout` longer than the server's slowest command",
	"holder dies":                                  "a short TTL: the others wait for it",
	"contender dies within its acquire":            "a short TTL: the others wait for it",
	"renewal fails to run":                         "processors to spare; `Do`, whose context ends in time",
	"renewal outlives the work":                    "`Options.MaxHold`",
	"expiry within the release":                    "a strategy whose release is one step",
	"expiry within the extension":                  "a strategy whose extension is one step",
	"release after another has it":                 "`Do`, which keeps the lock alive",
	"holder paused, looks before it writes":        "fences",
	"holder paused between look and write":         "fences",
	"holder paused, and the store looks at fences": "a strategy with fences",
	"server's clock jumps ahead":                   "clocks that are slewed, never stepped",
	"server's clock jumps back":                    "clocks that are slewed, never stepped",
	"contender's clock ahead":                      "any strategy but `setnxgetset`",
	"holder's clock behind":                        "any strategy but `setnxgetset`",
	"operator's release":                           "the fence; end the holder before you release its lock",
}

// Prevent is what a reader can do against the fault; a dash where there is no need.
func (f Fault) Prevent() string {
	if p, ok := prevent[f.Name]; ok {
		return p
	}
	return "–"
}

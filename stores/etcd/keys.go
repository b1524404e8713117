package etcd

import (
	"cmp"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/driver"
)

// keys are the keys of one lock.
type keys struct {
	holder string // has the holder's value
	queue  string // begins the keys of the queue, each of which ends with the token of a claim that waits
}

// keysOf gives different locks different keys, whatever bytes are in their names. A holder's key has no two slashes next to
// each other, so it never begins as the keys of a queue do. Those begin differently for different locks, as the two
// slashes come right after the holder's key.
func keysOf(key string) keys {
	holder := escape(key)
	return keys{holder, holder + "//queue/"}
}

// escape puts a % between a slash and a slash that follows it, and between a slash and a % that follows it.
func escape(key string) string {
	if !strings.Contains(key, "//") && !strings.Contains(key, "/%") {
		return key
	}
	var b strings.Builder
	for i := range len(key) {
		if i > 0 && key[i-1] == '/' && (key[i] == '/' || key[i] == '%') {
			b.WriteByte('%')
		}
		b.WriteByte(key[i])
	}
	return b.String()
}

// unescape is the inverse of escape.
func unescape(holder string) string { return strings.ReplaceAll(holder, "/%", "/") }

// valueOf is what the holder's key has: how many fences are reserved, and the token.
func valueOf(c driver.Claim) string { return strconv.Itoa(reserved(c)) + " " + c.Token }

// reserved is how many fences a claim reserves.
func reserved(c driver.Claim) int { return min(max(c.Fences, 1), driver.MaxFences) }

// A holder is what a holder's key says.
type holder struct {
	token string
	fence uint64           // the last one reserved
	rev   int64            // of the grant: it distinguishes this hold from all others
	lease clientv3.LeaseID // 0: none, which no lock has
}

// holderOf reads the holder's key. ok is false if what is there is not a lock.
func holderOf(kv *mvccpb.KeyValue) (h holder, ok bool) {
	count, token, ok := strings.Cut(string(kv.Value), " ")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || n > driver.MaxFences || token == "" || kv.Lease == 0 {
		return holder{}, false
	}
	return holder{token: token, fence: fenceOf(kv.ModRevision) + uint64(n-1), rev: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}, true
}

// fenceOf is the first fence of a grant that made this revision. etcd counts a revision for each transaction that writes, so
// every later grant has greater ones.
func fenceOf(rev int64) uint64 { return uint64(rev) * driver.MaxFences }

// free is the condition that nobody holds the lock.
func (k keys) free() clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(k.holder), "=", 0) }

// held is the condition that the holder is that of this revision. A claim without a grant has revision 0, and holds nothing: in etcd a
// key that is not there has that revision.
func (k keys) held(rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(k.holder), "=", cmp.Or(rev, -1))
}

// nobodyBefore is the condition that nobody who queues came before this revision. 0: that nobody queues at all. Otherwise somebody has to
// queue, such as the claim itself: of an empty queue etcd says that the condition fails.
func (k keys) nobodyBefore(rev int64) clientv3.Cmp {
	if rev == 0 {
		return clientv3.Compare(clientv3.CreateRevision(k.queue).WithPrefix(), "=", 0)
	}
	return clientv3.Compare(clientv3.CreateRevision(k.queue).WithPrefix(), ">", rev-1)
}

func (k keys) put(c driver.Claim, id clientv3.LeaseID) clientv3.Op {
	return clientv3.OpPut(k.holder, valueOf(c), clientv3.WithLease(id))
}

func (k keys) get() clientv3.Op    { return clientv3.OpGet(k.holder) }
func (k keys) delete() clientv3.Op { return clientv3.OpDelete(k.holder) }

// getQueue reads the queue in its order.
func (k keys) getQueue(more ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(k.queue, append(more, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))...)
}

// tokenOf is the token of a key of the queue.
func (k keys) tokenOf(kv *mvccpb.KeyValue) string { return strings.TrimPrefix(string(kv.Key), k.queue) }

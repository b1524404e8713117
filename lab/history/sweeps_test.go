package history

// Short histories written by hand: each judge rejects those that break its rule, and accepts the others.

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ops reads operations, one to a line: who, what, when in milliseconds (5- has not
// ended), with what result, and the rest by name. The lock is k, its TTL 100 ms.
//
//	A acquire 0-5 ok hold=a until=97 fence=1
func ops(t *testing.T, text string) []Op {
	t.Helper()
	at := func(s string) time.Duration {
		if s == "" {
			return Forever
		}
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * ms
	}
	var all []Op
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		op := Op{Client: words[0], Kind: Kind(words[1]), Key: "k"}
		from, to, _ := strings.Cut(words[2], "-")
		op.Start, op.End = at(from), at(to)
		for _, word := range words[3:] {
			name, value, named := strings.Cut(word, "=")
			switch name {
			case "until":
				op.Deadline = at(value)
			case "took":
				op.Took = at(value)
			case "share", "fence", "unconfirmed", "gaveUp", "noticed", "capped":
				setField(t, &op, name, value)
			default:
				if !named {
					name, value = "result", word
				}
				setField(t, &op, name, strconv.Quote(value))
			}
		}
		switch op.Kind {
		case KindFault:
			op.Key, op.Note, op.Client = "", words[0], ""
		case KindAcquire, KindRenew:
			op.TTL = 100 * ms
		}
		all = append(all, op)
	}
	return all
}

func setField(t *testing.T, op *Op, name, value string) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(fmt.Sprintf("{%q: %s}", name, value)))
	in.DisallowUnknownFields()
	if err := in.Decode(op); err != nil {
		t.Fatalf("%s=%s: %v", name, value, err)
	}
}

const ms = time.Millisecond

// rules are those by which a history is judged, by what stands behind the judge's name.
func rules(of string) Rules {
	r := Rules{
		Fenced: true, Bound: 200 * ms, Linger: 20 * ms, Forgets: func(f Op) bool { return f.Note == "flush" },
		Reentrant: of == "re", ReadWrite: of == "rw",
		Prompt: 30 * ms, Overtakers: 1, Equal: func(op Op) bool { return !strings.HasSuffix(op.Client, "poll") },
		Ends: func(f Op, client string) bool { return f.Note == "kill" && client == "A" },
	}
	switch of {
	case "3":
		r.Permits = 3
	case "slow":
		r.Hinders = func(f Op, _ string) bool { return f.Note != "slow" }
	}
	return r
}

// planted are histories that each judge must reject, and those that it must not: bad ones
// name a word of the sentence.
var planted = []struct{ judge, name, bad, history string }{
	{"Exclusion", "lost some time before it was noticed", "", `
		A acquire 0-5 ok hold=a until=97
		A lost 40-60 hold=a
		B acquire 45-55 ok hold=b until=142`},
	{"Exclusion", "seen to believe after that", "A and B", `
		A acquire 0-5 ok hold=a until=97
		A lost 56-60 hold=a
		B acquire 45-55 ok hold=b until=142`},
	{"Exclusion", "deadline and renewals", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 40-45 ok hold=a until=137
		A renew 50-52 unknown hold=a
		B acquire 120-137 ok hold=b until=220
		B renew 150-152 lost hold=b
		C acquire 150-152 ok hold=c until=250`},
	{"Exclusion", "a slow renewal does not fill the gap", "", `
		A acquire 0-5 ok hold=a until=97
		B acquire 98-99 ok hold=b until=195
		B release 105-110 ok hold=b
		A renew 90-106 ok hold=a until=187`},
	{"Exclusion", "two at once", "A and B", `
		A acquire 0-5 ok hold=a until=97
		B acquire 90-96 ok hold=b until=187`},
	{"Exclusion", "renewed too late", "B and A", `
		A acquire 0-5 ok hold=a until=97
		B acquire 98-99 ok hold=b until=195
		A renew 90-106 ok hold=a until=187`},
	{"Exclusion", "not with the neighbour in time", "A and C", `
		A acquire 0-5 ok hold=a until=97
		A renew 6-8 ok hold=a until=500
		B acquire 110-112 ok hold=b until=207 key=other
		C acquire 110-112 ok hold=c until=207`},
	{"Exclusion", "of an owner where nobody re-enters", "A and B", `
		A acquire 0-5 ok hold=a until=97 owner=o
		B acquire 10-15 ok hold=b until=107 owner=o`},
	{"Exclusion/re", "while the owner's second hold lasts", "B and C", `
		A acquire 0-5 ok hold=a until=97 owner=o
		B acquire 10-15 ok hold=b until=107 owner=o
		A release 20-25 ok hold=a
		C acquire 20-29 ok hold=c until=127
		B release 30-35 ok hold=b`},
	{"Exclusion/3", "one too many", "A, B, C and D all at once", `
		A acquire 0-5 ok hold=a until=97
		B acquire 0-6 ok hold=b until=97
		C acquire 0-7 ok hold=c until=97
		D acquire 10-12 ok hold=d until=107`},
	{"Exclusion/3", "several permits, and too many", "A and B both", `
		A acquire 0-5 ok hold=a until=97 share=2
		B acquire 0-6 ok hold=b until=97 share=2`},
	{"Exclusion/rw", "a reader next to a writer", "C and A", `
		C acquire 0-5 ok hold=c until=97
		A acquire 10-12 ok hold=a until=107 share=1`},
	{"Exclusion/rw", "a writer next to readers", "A and C", `
		A acquire 0-5 ok hold=a until=97 share=1
		B acquire 0-6 ok hold=b until=97 share=1
		A release 10-15 ok hold=a
		B release 18-25 ok hold=b
		A acquire 11-12 ok hold=a2 until=100 share=1
		C acquire 12-19 ok hold=c until=110`},

	{"Exclusion/rw", "a downgrade with a gap", "C and D", `
		C acquire 0-5 ok hold=c until=97
		C release 10-20 ok hold=c
		D acquire 11-12 ok hold=d until=109
		D release 13-14 ok hold=d
		C acquire 10-20 ok hold=c2 until=107 share=1 from=c`},

	{"Ownership", "flushed", "", `
		A acquire 0-5 ok hold=a until=97
		flush fault 10-12
		A renew 40-45 lost hold=a`},
	{"Ownership", "gone at its deadline, though a renewal was under way", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 40-60 ok hold=a until=140
		A lost 50-100 hold=a`},
	{"Ownership", "released what another holds", "release of A", `
		A acquire 0-5 ok hold=a until=97
		B acquire 98-99 ok hold=b until=195
		A release 110-115 ok hold=a
		B release 116-120 lost hold=b`},
	{"Ownership", "released twice", "after it had released", `
		A acquire 0-5 ok hold=a until=97
		A release 10-15 ok hold=a
		A release 20-25 ok hold=a`},
	{"Ownership", "gone", "before its deadline", `
		A acquire 0-5 ok hold=a until=97
		slow fault 10-12
		A renew 40-45 lost hold=a`},
	{"Ownership", "gone, after a renewal", "before its deadline", `
		A acquire 0-5 ok hold=a until=97
		A renew 40-45 ok hold=a until=137
		A release 90-100 lost hold=a`},

	{"Ownership/3", "renewed when all are held by others", "B and C held", `
		A acquire 0-5 ok hold=a until=97
		B acquire 98-99 ok hold=b until=195
		C acquire 98-99 ok hold=c until=195 share=2
		A renew 110-115 ok hold=a until=207`},
	{"Ownership/rw", "renewed while another writes", "C held", `
		A acquire 0-5 ok hold=a until=97 share=1
		C acquire 98-99 ok hold=c until=195
		A renew 110-115 ok hold=a until=207`},

	{"DeadlockFree", "somebody gets it", "", `
		A acquire 0-190 held
		B acquire 0-195 ok hold=b until=290
		A acquire 191-400 held`},
	{"DeadlockFree", "a fault", "", `
		A acquire 0-150 held
		cut fault 151-160
		A acquire 155-350 ok hold=a until=450`},
	{"DeadlockFree", "nobody keeps trying", "", `
		A acquire 0-150 held
		A acquire 180-350 held
		B acquire 100-250 held
		C acquire 0- unknown
		A read 900-901 ok hold=a value=0`},
	{"DeadlockFree", "it is held", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 90-95 ok hold=a until=187
		A renew 180-185 ok hold=a until=277
		B acquire 10-470 held`},
	{"DeadlockFree", "one asks again and again", "nobody held", `
		A acquire 0-100 held
		A acquire 110-150 unsent
		A acquire 160-300 ok hold=a until=400`},
	{"DeadlockFree", "long after a fault", "nobody held", `
		cut fault 0-50
		A acquire 0-300 held`},
	{"DeadlockFree", "its holder was killed", "nobody held", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-298 unknown
		C acquire 0- unknown`},
	{"DeadlockFree", "another lock is free", "nobody held", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-298 held key=other`},
	{"DeadlockFree/slow", "a fault that hinders nobody", "nobody held", `
		slow fault 0-250
		A acquire 0-300 held`},

	{"DeadlockFree/3", "all are held", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 80-85 ok hold=a until=300
		B acquire 0-6 ok hold=b until=300 share=2
		C acquire 10-290 held`},
	{"DeadlockFree/3", "one waits for more than are free", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 80-85 ok hold=a until=300
		B acquire 10-290 held share=3
		C acquire 20-290 held`},
	{"DeadlockFree/3", "some are free", "nobody held", `
		A acquire 0-5 ok hold=a until=300 share=2
		B acquire 10-290 held`},
	{"DeadlockFree/rw", "a writer waits for readers", "", `
		A acquire 0-5 ok hold=a until=300 share=1
		C acquire 10-290 held
		B acquire 10-290 held share=1`},
	{"DeadlockFree/rw", "a reader waits for nobody", "nobody held", `
		A acquire 0-5 ok hold=a until=300 share=1
		B acquire 10-290 held share=1`},

	{"HonestLoss", "in time", "", `
		A acquire 0-5 ok hold=a until=97
		A read 96-120 ok hold=a value=0
		A renew 90-95 ok hold=a until=187
		A write 186-200 refused hold=a value=1
		A write 187-187 unsent hold=a value=1
		A lost 188-190 hold=a
		A release 190-190 lost hold=a`},
	{"HonestLoss", "what a renewal has given that was noticed later", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 90-105 ok hold=a until=187 noticed=true
		A write 98-99 ok hold=a value=1
		A renew 95-110 ok hold=a until=190
		A release 120-125 ok hold=a`},
	{"HonestLoss", "a renewal whose client was paused right after the answer", "", `
		A acquire 0-5 ok hold=a until=97
		A renew 50-110 ok hold=a until=147 took=46`},
	{"HonestLoss", "a renewal that was answered at the deadline", "renew of A", `
		A acquire 0-5 ok hold=a until=97
		A renew 50-110 ok hold=a until=147 took=47`},
	{"HonestLoss", "what a renewal under way has not given yet", "write of A", `
		A acquire 0-5 ok hold=a until=97
		A renew 90-105 unknown hold=a until=187
		A write 98-99 ok hold=a value=1`},
	{"HonestLoss", "lost, used and back again", "write of A", `
		A acquire 0-5 ok hold=a until=97
		A renew 50-150 ok hold=a until=147
		A write 120-121 ok hold=a value=1`},
	{"HonestLoss", "lost and back again", "renew of A", `
		A acquire 0-5 ok hold=a until=97
		A renew 50-97 ok hold=a until=147`},
	{"HonestLoss", "a write at the deadline", "write of A", `
		A acquire 0-5 ok hold=a until=97
		A write 97-98 ok hold=a value=1`},
	{"HonestLoss", "a write after the loss was known", "write of A", `
		A acquire 0-5 ok hold=a until=97
		A renew 10-15 lost hold=a
		A write 16-17 unknown hold=a value=1`},
	{"HonestLoss", "a write after the release", "write of A", `
		A acquire 0-5 ok hold=a until=97
		A release 10-15 unknown hold=a
		A write 11-12 ok hold=a value=1`},
	{"HonestLoss", "renewed after the loss", "renew of A", `
		A acquire 0-5 ok hold=a until=97
		A lost 8-10 hold=a
		A renew 20-25 ok hold=a until=117`},
	{"HonestLoss", "released after the deadline", "release of A", `
		A acquire 0-5 ok hold=a until=97
		A release 98-99 ok hold=a`},
	{"HonestLoss", "a deadline beyond the TTL", "more than the TTL", `
		A acquire 0-5 ok hold=a until=106`},
	{"HonestLoss", "a renewed deadline beyond the TTL", "more than the TTL", `
		A acquire 0-5 ok hold=a until=97
		A renew 10-15 ok hold=a until=116`},

	{"HonestAmbiguity", "as it was", "", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-15 held
		A renew 20-30 unknown hold=a
		B acquire 140-145 held
		C acquire 300-305 unknown
		B acquire 310-315 held
		B acquire 424-426 held
		A write 10-12 ok hold=a value=1`},
	{"HonestAmbiguity", "the server was paused", "", `
		A acquire 0-5 unknown
		freeze fault 100-300
		freeze fault 310-500
		B acquire 619-640 held
		C acquire 700-705 refused`},
	{"HonestAmbiguity", "who gave up may have got it", "", `
		A acquire 0-5 unsent gaveUp=true
		B acquire 6-7 held`},
	{"HonestAmbiguity", "an attempt of an acquire that went on", "", `
		A acquire 0-50 ok hold=a until=97 unconfirmed=1
		A release 51-52 ok hold=a
		B acquire 53-54 held`},
	{"HonestAmbiguity", "released what nobody knows, to be sure", "", `
		A acquire 0-5 unknown hold=a
		A release 10-12 unknown hold=a`},
	{"HonestAmbiguity", "used what nobody knows", "nobody was granted", `
		A acquire 0-5 unknown hold=a
		A write 10-12 refused hold=a value=1`},
	{"HonestAmbiguity", "released what was never sent", "nobody was granted", `
		A acquire 0-5 unsent hold=a
		A release 10-12 ok hold=a`},
	{"HonestAmbiguity", "one token twice", "same token", `
		A acquire 0-5 ok hold=a until=97
		A release 10-12 ok hold=a
		B acquire 20-25 ok hold=a until=117`},
	{"HonestAmbiguity", "held by nobody", "nobody could have held it", `
		A acquire 0-5 ok hold=a until=97
		A release 10-12 ok hold=a
		B acquire 13-15 held
		A acquire 16-17 ok hold=a2 until=117`},
	{"HonestAmbiguity", "held for too long", "nobody could have held it", `
		A acquire 0-5 ok hold=a until=97
		A renew 10-20 ok hold=a until=107
		B acquire 141-145 held`},
	{"HonestAmbiguity", "not recorded whole", "no hold", `
		A acquire 0-5 ok until=97`},

	{"HonestAmbiguity/3", "all are held", "", `
		A acquire 0-5 ok hold=a until=97
		B acquire 0-5 ok hold=b until=97 share=2
		C acquire 10-15 held
		A release 20-25 ok hold=a
		C acquire 24-30 held
		D acquire 110-115 unknown
		B lost 97-98 hold=b
		C acquire 120-125 held
		C acquire 126-127 held share=3`},
	{"HonestAmbiguity/3", "one waits for more", "", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-30 held share=3 gaveUp=true
		C acquire 20-25 held`},
	{"HonestAmbiguity/3", "some are free", "too few", `
		A acquire 0-5 ok hold=a until=97
		B acquire 0-5 ok hold=b until=97
		C acquire 10-15 held`},
	{"HonestAmbiguity/3", "never all at one moment", "too few", `
		A acquire 0-5 ok hold=a until=97 share=2
		A release 10-12 ok hold=a
		B acquire 13-14 ok hold=b until=111
		C acquire 8-16 held`},
	{"HonestAmbiguity/rw", "a writer holds it, or waits", "", `
		C acquire 0-5 ok hold=c until=97
		A acquire 6-8 held share=1
		C release 10-12 ok hold=c
		A acquire 13-14 ok hold=a until=111 share=1
		C acquire 15-20 ok hold=c2 until=117
		B acquire 16-17 held share=1
		D acquire 16-17 held`},
	{"HonestAmbiguity/rw", "readers alone", "too few", `
		A acquire 0-5 ok hold=a until=97 share=1
		B acquire 6-8 held share=1`},

	{"FenceOrder", "they rise again", "", `
		A acquire 0-5 ok hold=a until=97 fence=5
		B acquire 6-15 ok hold=b until=97 fence=6
		B write 20-22 ok hold=b value=1 fence=6
		A acquire 16-20 ok hold=a2 until=97 fence=7 key=other`},
	{"FenceOrder", "a lesser one, far away", "after A", `
		A acquire 0-5 ok hold=a until=97 fence=5
		C acquire 0-35 ok hold=c until=97 fence=1
		D acquire 0-45 ok hold=d until=97 fence=2
		B acquire 6-55 ok hold=b until=97 fence=3`},
	{"FenceOrder", "the same at once", "same fence", `
		A acquire 0-5 ok hold=a until=97 fence=5
		B acquire 4-15 ok hold=b until=97 fence=5`},
	{"FenceOrder", "none", "without a fence", `
		A acquire 0-5 ok hold=a until=97`},
	{"FenceOrder", "renewal changes it", "changed", `
		A acquire 0-5 ok hold=a until=97 fence=5
		A renew 6-7 ok hold=a until=103 fence=6`},
	{"FenceOrder/re", "a tenure", "", `
		A acquire 0-5 ok hold=a until=97 fence=5 owner=o
		B acquire 8-15 ok hold=b until=110 fence=5 owner=o
		A release 20-22 ok hold=a
		C acquire 25-27 ok hold=c until=120 fence=5 owner=o
		B release 30-32 ok hold=b
		C release 40-42 ok hold=c
		D acquire 40-45 ok hold=d until=140 fence=6`},
	{"HonestLoss", "a short deadline of a hold that is over", "of a TTL of", `
		A acquire 0-5 ok hold=a until=40
		A release 30-32 ok hold=a`},
	{"HonestLoss", "a short deadline of a hold that is renewed", "", `
		A acquire 0-5 ok hold=a until=40
		A renew 10-15 ok hold=a until=110
		A release 30-32 ok hold=a`},
	{"HonestLoss", "a short deadline while something is broken", "", `
		A acquire 0-5 ok hold=a until=40
		slow fault 20-25
		A release 30-32 ok hold=a`},
	{"Ownership", "the maximum hold is over", "", `
		A acquire 0-5 ok hold=a until=97
		A lost 40-42 hold=a capped=true`},

	{"Prompt", "a lock that was released", "B tried for", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-60 held
		A release 20-25 ok hold=a`},
	{"Prompt", "a lock that nobody undid", "B tried for", `
		A acquire 0-5 unknown
		B acquire 20-70 held`},
	{"Prompt", "a lock that its client, which ended, did not undo", "", `
		A acquire 0-5 unknown
		kill fault 10-12
		B acquire 20-70 held`},
	{"Prompt", "a release that nobody repeated", "B tried for", `
		A acquire 0-5 ok hold=a until=97
		A release 6-10 unknown hold=a note=lost
		B acquire 20-80 held`},
	{"Prompt", "a lock that was detached", "", `
		A acquire 0-5 ok hold=a until=97
		A release 6-10 unknown hold=a
		B acquire 20-80 held`},
	{"Prompt", "a maximum hold that is over", "B tried for", `
		A acquire 0-5 ok hold=a until=97
		A lost 8-10 hold=a capped=true
		B acquire 20-80 held`},
	{"Prompt", "something is broken", "", `
		A acquire 0-5 ok hold=a until=97
		B acquire 10-60 held
		A release 20-25 ok hold=a
		slow fault 50-52`},

	{"Fair", "two of other processes", "allowed are 1", `
		A/1 acquire 0-30 held
		B/1 acquire 1-5 ok hold=b until=97
		C/1 acquire 6-9 ok hold=c until=97`},
	{"Fair", "who came before, is of one's own process, or came too late", "", `
		B/1 acquire 0-5 ok hold=b until=97
		A/1 acquire 1-30 held
		A/2 acquire 6-9 ok hold=c until=97
		C/1 acquire 10-12 ok hold=d until=97
		D/1 acquire 13-31 ok hold=e until=97`},
	{"Fair", "behind one that waits in another way", "", `
		A/poll acquire 0-20 held
		A/1 acquire 1-30 held
		B/1 acquire 2-5 ok hold=b until=97
		C/1 acquire 6-9 ok hold=c until=97`},
	{"Fair", "who waits in another way", "", `
		A/poll acquire 0-30 held
		B/1 acquire 1-5 ok hold=b until=97
		C/1 acquire 6-9 ok hold=c until=97`},

	{"FenceOrder/re", "re-entry with a new one", "entered it again", `
		A acquire 0-5 ok hold=a until=97 fence=5 owner=o
		B acquire 8-15 ok hold=b until=110 fence=6 owner=o`},
	{"FenceOrder/re", "of two owners", "same fence", `
		A acquire 0-5 ok hold=a until=97 fence=5 owner=o
		B acquire 8-15 ok hold=b until=110 fence=5 owner=p`},

	{"FenceOrder/rw", "a reader has the one before", "after C", `
		C acquire 0-5 ok hold=c until=97 fence=5
		A acquire 8-10 ok hold=a until=107 fence=4 share=1`},
	{"FenceOrder/rw", "a writer has a reader's", "after A", `
		A acquire 0-5 ok hold=a until=97 fence=5 share=1
		C acquire 8-10 ok hold=c until=107 fence=5`},
	{"FenceOrder/rw", "two writers have one", "same fence", `
		C acquire 0-5 ok hold=c until=97 fence=5
		A acquire 6-7 ok hold=a until=97 fence=5 share=1
		D acquire 4-15 ok hold=d until=97 fence=5`},

	{"NoLostUpdate", "a chain", "", `
		A read 0-1 ok hold=a value=0
		A write 2-3 ok hold=a value=1
		A write 3-4 ok hold=a value=1b
		B read 5-6 ok hold=b value=1b
		B write 7-8 unknown hold=b value=2
		C read 9-10 ok hold=c value=1b
		C write 11-12 ok hold=c value=3
		D read 13-14 ok hold=d value=3`},
	{"NoLostUpdate", "nobody knows, but it did", "", `
		A read 0-1 ok hold=a value=0
		A write 2-3 unknown hold=a value=1
		B read 5-6 ok hold=b value=1
		B write 7-8 ok hold=b value=2
		C read 1-20 ok hold=c value=0
		C write 21-22 refused hold=c value=3
		D read 5-6 ok hold=d value=0 key=other`},
	{"NoLostUpdate", "both from one value, long after", "one of them is lost", `
		A read 0-1 ok hold=a value=0
		B read 5-6 ok hold=b value=0
		B write 7-8 ok hold=b value=2
		C read 9-10 ok hold=c value=2
		C write 11-12 ok hold=c value=3
		A write 19-20 ok hold=a value=1`},

	{"NoLostUpdate", "of unknown end, and never seen", "", `
		A read 0-1 ok hold=a value=0
		A write 2- unknown hold=a value=1
		B read 3-4 ok hold=b value=0
		B write 5-6 ok hold=b value=2
		C read 7-8 ok hold=c value=2`},
	{"NoLostUpdate", "of unknown end, seen, and lost", "both come from", `
		A read 0-1 ok hold=a value=0
		B read 0-1 ok hold=b value=0
		A write 2- unknown hold=a value=1
		C read 3-4 ok hold=c value=1
		B write 5-6 ok hold=b value=2
		D read 7-8 ok hold=d value=2`},
}

func TestPlanted(t *testing.T) {
	t.Parallel()
	for _, c := range planted {
		t.Run(c.judge+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			judge, of, _ := strings.Cut(c.judge, "/")
			var found []Violation
			for _, v := range Judge(ops(t, c.history), rules(of)) {
				if v.Property == judge && len(v.Ops) > 0 {
					found = append(found, v)
				}
			}
			if (c.bad == "") != (len(found) == 0) || !strings.Contains(fmt.Sprint(found), c.bad) {
				t.Errorf("%s finds %v, want what says %q; none if that is empty", judge, found, c.bad)
			}
		})
	}
}

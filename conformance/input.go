package conformance

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

func input() []Property {
	return inGroup("input",
		scripted("OddNames", "A lock's name may be any bytes, and different names are different locks.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			var names []string
			for _, odd := range []string{
				"", " ", "a", "A", "ä", "a\u0308", "\x00", "\x00b", "\xff\xfe", "\r\n", "'", `"`, `\`,
				"{", "}", "{}", "{a}", "}{", "*", "?", "[a]", "%", "%7D", "%25", ":", ":fence", ":free", "/", "..",
			} {
				names = append(names, t.name+odd, odd+t.name)
			}
			names = append(names, t.name+strings.Repeat("x", contract.MaxNameLen-len(t.name)))
			names = append(names[:0:0], names[1:]...) // the empty oddity gives the same name twice
			var holds []*hold
			for _, name := range names {
				holds = append(holds, a.on(name).try().want(nil, fmt.Sprintf("%q is free: no other lock has that name", name)))
				b.on(name).try().want(strategy.ErrHeld, fmt.Sprintf("A holds %q", name))
			}
			for i, h := range holds {
				if got := h.lease.Name(); got != names[i] {
					t.failf("Name() = %q, want %q", got, names[i])
				}
				h.release().want(nil, fmt.Sprintf("A holds %q", names[i]))
				b.on(names[i]).try().want(nil, fmt.Sprintf("A has released %q", names[i])).release().want(nil, "B holds it")
			}
		}),
		scripted("BadNames",
			"A name or an owner that is not allowed is refused by every call, with an error that says so; that is not \"held\".",
			func(t *trial) {
				a := t.contender("A", ample)
				for _, name := range []string{"", t.name + strings.Repeat("x", contract.MaxNameLen)} {
					bad := a.on(name)
					why := fmt.Sprintf("the name has %d bytes", len(name))
					bad.try().wantAdvice(why)
					bad.acquire().wantAdvice(why)
					bad.adopt("token").wantAdvice(why)
				}
				long := strategy.WithOwner(t.ctx, strings.Repeat("x", contract.MaxNameLen+1))
				a.tryWith(long).wantAdvice("the owner is too long")
				a.try().want(nil, "what was refused took no lock")
			}),
		scripted("BadOptions",
			"Options that make no sense are refused when the lock is opened, with an error that says what is allowed.",
			func(t *trial) {
				for why, o := range map[string]strategy.Options{
					"the TTL is negative":                {TTL: -time.Second},
					"the TTL is less than a millisecond": {TTL: time.Microsecond},
					"the TTL is no whole milliseconds":   {TTL: time.Second + time.Microsecond},
					"the TTL is more than a day":         {TTL: contract.MaxTTL + time.Millisecond},
					"the operation time-out is the TTL":  {TTL: time.Second, OpTimeout: time.Second},
					"the operation time-out is negative": {OpTimeout: -time.Second},
					"the fences expire too soon":         {TTL: time.Second, FenceTTL: 2*time.Second - time.Millisecond},
					"the label is too long":              {Label: strings.Repeat("x", contract.MaxLabelLen+1)},
					"there is no such way to wait":       {Wait: 99},
				} {
					s, err := t.Open(o)
					if err == nil {
						s.Close()
					}
					t.rec.add("Open(%s) = %v", why, err)
					call{t: t, c: &contender{o: ample}, text: "Open()", err: err}.wantAdvice(why)
				}
			}),
		scripted("BadMaxHold", "A maximum hold shorter than the TTL is refused, and the lock stays held.", func(t *trial) {
			a := t.contender("A", ample)
			h := a.try().want(nil, "the lock is free")
			for _, most := range []time.Duration{-time.Second, time.Millisecond, ample.TTL - 1} {
				h.do(fmt.Sprintf("KeepAlive(%v)", most), func() error { return h.lease.KeepAlive(most) }).wantAdvice("it is less than the TTL")
			}
			h.release().want(nil, "A holds the lock")
		}),
		scripted("WrongType",
			"A key that is not a lock is a clear error and left alone: it is not \"held\", which would mean waiting for ever.",
			func(t *trial) {
				t.needs(t.Spoil != nil, "Subject.Spoil is nil")
				a, b := t.contender("A", ample), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				t.evict(t.name)
				t.spoil()
				b.try().wantRefused()
				b.acquire().wantRefused()
				h.extend().wantRefused()
				h.release().wantRefused()
				b.try().wantRefused() // so it is still there
				t.evict(t.name)
				b.eventually("what was in the way is gone")
			}),
	)
}

// spoil puts something in the lock's place.
func (t *trial) spoil() {
	if err := t.Spoil(t.ctx, strategy.DefaultKey(t.name)); err != nil {
		t.brokef("Subject.Spoil: %w", err)
	}
	t.rec.add("the key is made something that is no lock")
}

// wantRefused ends the trial unless the servers said no.
func (k call) wantRefused() {
	if !errors.Is(k.err, strategy.ErrRefused) || errors.Is(k.err, strategy.ErrHeld) || errors.Is(k.err, strategy.ErrLost) {
		k.t.failf("%s = %w, want ErrRefused: the key is no lock", k.text, orNil{k.err})
	}
}

// wantAdvice ends the trial unless the error tells the caller what is allowed.
func (k call) wantAdvice(why string) {
	for _, about := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent, strategy.ErrUnknown} {
		if errors.Is(k.err, about) {
			k.t.failf("%s = %w, want an error that says what is allowed: %s", k.text, k.err, why)
		}
	}
	if k.err == nil || !strings.Contains(k.err.Error(), "allowed") {
		k.t.failf("%s = %w, want an error that says what is allowed: %s", k.text, orNil{k.err}, why)
	}
}

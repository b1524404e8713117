package broken

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// Protocols are the locks that are broken wherever they are played: by what their protocol does with a correct one.
func Protocols() []Lock {
	return []Lock{
		GrantsWhatIsHeld, TakesSilenceForYes, TakesSilenceForHeld, WaitsOnItsOwn, UndoesNothing, HidesThatItCameTooLate,
		CountsFromTheReply, ExtendsAnything, RepeatsAFence, HasFencesOfItsOwn,
	}
}

// granting is a lock with something else in place of what its acquires come to.
func granting(name string, instead func(driver.Grant, error) (driver.Grant, error), breaks ...string) Lock {
	return Lock{Name: name, Breaks: breaks, Protocol: func(p driver.Protocol) driver.Protocol { return Granting(p, instead) }}
}

// GrantsWhatIsHeld takes "held" for an answer that can be argued with.
var GrantsWhatIsHeld = granting("grants what is held", func(g driver.Grant, err error) (driver.Grant, error) {
	if errors.Is(err, strategy.ErrHeld) {
		return driver.Grant{}, nil
	}
	return g, err
}, "Exclusive")

// TakesSilenceForYes believes that what it did not hear about went well.
var TakesSilenceForYes = granting("takes no answer for a yes", func(g driver.Grant, err error) (driver.Grant, error) {
	if errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent) {
		return driver.Grant{}, nil
	}
	return g, err
}, "TimeOut")

// TakesHalfForMost counts votes, and miscounts.
var TakesHalfForMost = granting("takes half of the votes for most", func(g driver.Grant, err error) (driver.Grant, error) {
	if votes := (*strategy.QuorumError)(nil); errors.As(err, &votes) {
		agreed, answered := 0, 0
		for _, n := range votes.Nodes {
			if n.Err == nil {
				agreed++
			}
			if n.Err == nil || errors.Is(n.Err, strategy.ErrHeld) {
				answered++
			}
		}
		if agreed > 0 && 2*agreed >= answered {
			return driver.Grant{}, nil
		}
	}
	return g, err
})

// CountsFromTheReply is as young as its last answer.
var CountsFromTheReply = Lock{
	Name:   "counts the TTL from the reply",
	Breaks: []string{"DeadlineFromRequest"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		young := func(g driver.Grant, err error) (driver.Grant, error) {
			g.Start = time.Now()
			return g, err
		}
		return Extending(Granting(p, young), young)
	},
}

// ExtendsAnything takes every answer to a renewal for a yes.
var ExtendsAnything = Lock{
	Name:   "takes any answer for an extension",
	Breaks: []string{"LossNoticed", "ExtendOnlyOwn", "ExtendNeverRecreates"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		return Extending(p, func(g driver.Grant, err error) (driver.Grant, error) {
			if err != nil {
				return driver.Grant{}, nil
			}
			return g, nil
		})
	},
}

// UndoesNothing leaves behind what it does not know the end of.
var UndoesNothing = Lock{
	Name:   "undoes nothing",
	Breaks: []string{"LateRequestUndone"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		return &Protocol{Protocol: p, Undoes: func(context.Context, driver.Claim) error { return nil }}
	},
	Node: func(n driver.Node) driver.Node { // where a protocol itself undoes
		var unknown sync.Map
		return &node{Node: n, eval: func(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
			tokens := tokensIn(args)
			if s.Name() == "release" && slices.ContainsFunc(tokens, func(t string) bool { _, lost := unknown.Load(t); return lost }) {
				return nil, nil
			}
			reply, err := n.Eval(ctx, due, s, keys, args...)
			if s.Name() == "acquire" && errors.Is(err, strategy.ErrUnknown) {
				for _, t := range tokens {
					unknown.Store(t, true)
				}
			}
			return reply, err
		}}
	},
}

// tokensIn are the tokens among a script's arguments.
func tokensIn(args []any) (tokens []string) {
	for _, a := range args {
		t, _ := a.(string)
		if _, drawn := token.Parse(t); !drawn.IsZero() {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// TakesSilenceForHeld believes that what it did not hear about is another's.
var TakesSilenceForHeld = granting("calls a server that does not answer held", func(g driver.Grant, err error) (driver.Grant, error) {
	if errors.Is(err, strategy.ErrUnknown) {
		err = &strategy.HeldError{}
	}
	return g, err
}, "TimeOut", "Persist")

// WaitsOnItsOwn asks until the lock is free, though its caller wants to know at once.
var WaitsOnItsOwn = Lock{
	Name:   "waits when it is to try",
	Breaks: []string{"TryDoesNotWait"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		return &Protocol{Protocol: p, Acquires: func(ctx context.Context, c driver.Claim) (driver.Grant, error) {
			for {
				g, err := p.Acquire(ctx, c)
				if !errors.Is(err, strategy.ErrHeld) {
					return g, err
				}
				time.Sleep(time.Millisecond)
			}
		}}
	},
}

// HidesThatItCameTooLate says that it has released what was another's by then.
var HidesThatItCameTooLate = Lock{
	Name:   "hides that it came too late to release",
	Breaks: []string{"ReleaseAfterLoss"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		return &Protocol{Protocol: p, Releases: func(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
			o, err := p.Release(ctx, c)
			if errors.Is(err, strategy.ErrLost) {
				err = nil
			}
			return o, err
		}}
	},
}

// RepeatsAFence gives each holder the same one.
var RepeatsAFence = granting("repeats a fence", func(g driver.Grant, err error) (driver.Grant, error) {
	g.Fence = min(g.Fence, 1)
	return g, err
}, "FenceRises", "FenceOrders")

// HasFencesOfItsOwn counts holds in each process, and not on the server.
var HasFencesOfItsOwn = Lock{
	Name:   "counts fences in each process",
	Breaks: []string{"FenceRises"},
	Protocol: func(p driver.Protocol) driver.Protocol {
		var last atomic.Uint64
		return Granting(p, func(g driver.Grant, err error) (driver.Grant, error) {
			g.Fence = last.Add(1)
			return g, err
		})
	},
}

// GrantsSome grants 1 in 100 of what is held; with a fence, if it is to have one.
func GrantsSome(p driver.Protocol, fenced bool) driver.Protocol {
	return Granting(p, func(g driver.Grant, err error) (driver.Grant, error) {
		if !errors.Is(err, strategy.ErrHeld) || rand.IntN(100) > 0 {
			return g, err
		}
		if fenced {
			return driver.Grant{Fence: uint64(time.Now().UnixMicro())}, nil
		}
		return driver.Grant{}, nil
	})
}

// NeverExpires takes the TTL away from what p has acquired on the nodes. Where that fails the key expires.
func NeverExpires(p driver.Protocol, nodes ...driver.Node) driver.Protocol {
	return &Protocol{Protocol: p, Acquires: func(ctx context.Context, c driver.Claim) (driver.Grant, error) {
		g, err := p.Acquire(ctx, c)
		for _, n := range nodes {
			if err == nil {
				n.Do(ctx, c.Due, "PERSIST", c.Key)
			}
		}
		return g, err
	}}
}

package engine

import (
	"errors"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// An outcome is what a request has done at the servers.
type outcome uint8

const (
	done     outcome = iota // what it was to do
	held                    // somebody else has the lock
	lost                    // nothing: the token was not the holder's any more
	noEffect                // nothing at all
	unknown                 // nobody knows, or some of several servers have not answered: what may remain is to be undone
)

// errPanic is what became of a request that has not returned, because the protocol panicked: nobody knows.
var errPanic = errors.New("panic in a request")

// outcomeOf is the outcome of a request that got g and err.
func outcomeOf(g driver.Grant, err error) outcome {
	switch {
	case err == nil:
		return done
	case mayRemain(g, err):
		return unknown
	case errors.Is(err, strategy.ErrHeld):
		return held
	case errors.Is(err, strategy.ErrLost):
		return lost
	case errors.Is(err, strategy.ErrRefused), errors.Is(err, strategy.ErrUnsent), errors.Is(err, strategy.ErrUnsupported):
		return noEffect
	default: // an error of no kind
		return unknown
	}
}

package strategy

import "errors"

// Gone is what a protocol's Release returns when the token that it was to remove
// is not there; holder is the token that is, empty if none.
//
// For a caller's release that is ErrLost. For an undo it is success, if the
// acquire can no longer arrive: it was answered (the claim bears a grant), or the
// node keeps order, so that the release came after it. On any other node "not
// found" may be too early an answer, and the machinery must ask again.
func Gone(n Node, c Claim, holder string) error {
	switch {
	case !c.Undo:
		return &LostError{Name: c.Name, Holder: holder}
	case c.Grant != (Grant{}) || n.Ordered():
		return nil
	default:
		return &ServerError{Node: n.Name(), Kind: ErrUnknown, Err: errAcquireMayArrive}
	}
}

var errAcquireMayArrive = errors.New("the lock is not there, but the request that timed out may still arrive")

package strategy

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"
)

// What a server's ACL has to allow is found out by Check, before the first lock: who learns
// late that a release is forbidden has locked until the TTL ends.

// A Right is what the scripts of a protocol do with one of a lock's keys.
type Right struct {
	Key      string
	Commands []string // such as "GET"; "TIME" and the like are of no key
	Channel  string   // to which they PUBLISH, if that is one of the commands
}

var (
	//go:embed rights.lua
	rightsLua string

	rights = NewScript("rights", rightsLua)

	// Whoever may EVALSHA alone is stuck when the server has forgotten the scripts. What is
	// no Lua has to be sent in full each time, and the server keeps nothing of it.
	noLua = NewScript("no Lua", "no Lua")
)

// CheckClaim is of a lock that nobody has, for a [Checker]: under a name that begins with
// "check:" and is never used twice.
func CheckClaim(o Options) (Claim, error) {
	id, err := newToken("", false)
	if err != nil {
		return Claim{}, err
	}
	name := "check:" + id
	return Claim{Name: name, Key: o.Key(name), Token: id, Owner: id, TTL: o.TTL, Due: time.Now().Add(o.OpTimeout)}, nil
}

// CheckScripts tells whether n lets scripts do what they need to; it changes nothing. The
// keys of the rights are those of a [CheckClaim]. The error is [ErrRefused], if that is it,
// and names what to allow.
func CheckScripts(ctx context.Context, due time.Time, n Node, needed ...Right) error {
	var errs []error
	for _, r := range needed {
		args := []any{r.Channel}
		for _, cmd := range r.Commands {
			args = append(args, cmd)
		}
		reply, err := n.Eval(ctx, due, rights, []string{r.Key}, args...)
		if errors.Is(err, ErrRefused) {
			errs = append(errs, fmt.Errorf("%w (scripts use the key %s: allow it, +evalsha and +eval)", err, r.Key))
			continue
		}
		if err != nil {
			return err
		}
		refused, err := readRefused(n, r, reply)
		if err != nil {
			return err
		}
		errs = append(errs, refused...)
	}
	if len(errs) > 0 || len(needed) == 0 {
		return errors.Join(errs...)
	}
	if _, err := n.Eval(ctx, due, noLua, []string{needed[0].Key}); forbidden(err) {
		return fmt.Errorf("%w (allow +eval: the server forgets scripts)", err)
	}
	return nil
}

// readRefused reads what rights.lua returns.
func readRefused(n Node, r Right, reply any) (refused []error, err error) {
	said, ok := reply.([]any)
	if !ok || len(said)%2 != 0 {
		return nil, BadReply(n, reply)
	}
	for i := 0; i < len(said); i += 2 {
		cmd, ok := said[i].([]byte)
		why, ok2 := said[i+1].([]byte)
		if !ok || !ok2 {
			return nil, BadReply(n, reply)
		}
		on := r.Key
		if string(cmd) == "PUBLISH" {
			on = "the channel " + r.Channel
		}
		words := fmt.Sprintf("NOPERM scripts of this user may not run %s on %s: allow +%s", cmd, on, strings.ToLower(string(cmd)))
		if len(why) > 0 {
			words += fmt.Sprintf(" (%s)", why)
		}
		refused = append(refused, &ServerError{Node: n.Name(), Kind: ErrRefused, Err: errors.New(words)})
	}
	return refused, nil
}

// CheckCommands tells whether n takes commands on a key, each a name and its arguments after
// the key, for protocols without scripts. The key is that of a [CheckClaim], and the arguments
// such that nothing is changed.
func CheckCommands(ctx context.Context, due time.Time, n Node, key string, cmds ...[]any) error {
	var errs []error
	for _, cmd := range cmds {
		name := cmd[0].(string)
		_, err := n.Do(ctx, due, name, key, cmd[1:]...)
		if errors.Is(err, ErrRefused) {
			errs = append(errs, fmt.Errorf("%w (%s of %s: allow +%s and the key)", err, name, key, strings.ToLower(name)))
		} else if err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// CheckWatch tells whether a way to wait that Options ask for by name can be had. Where they
// ask for the best, there is another.
func CheckWatch(ctx context.Context, c Claim, w Wait, p Notifier) error {
	if w != WaitNotice && w != WaitQueue {
		return nil
	}
	if w == WaitQueue {
		c.Line = c.Token
	}
	stop, err := p.Watch(ctx, c, func(Notice) {})
	if err != nil {
		return fmt.Errorf("%w (Options.Wait is %v: allow +subscribe, +unsubscribe and the channels of %s, or set it to WaitBest or WaitPoll)", err, w, c.Key)
	}
	stop()
	return nil
}

// forbidden tells that the ACL is what a server refuses for.
func forbidden(err error) bool {
	var said *ServerError
	return errors.As(err, &said) && said.Kind == ErrRefused && said.Err != nil && strings.HasPrefix(said.Err.Error(), "NOPERM ")
}

package rediskit

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// This file is how protocols find out before the first lock whether they can rely on their servers. A caller that
// learns late that it may not release has locked until the TTL ends.

// CheckLock is the Check of most protocols. It runs every check with the claim of a lock that nobody
// has ([CheckClaim]), and then inspects that lock.
func CheckLock(ctx context.Context, o strategy.Options, p driver.Protocol, checks ...func(context.Context, driver.Claim) error) error {
	c := CheckClaim(o)
	for _, check := range checks {
		if err := check(ctx, c); err != nil {
			return err
		}
	}
	_, err := p.Inspect(ctx, c)
	return err
}

// A Scripted protocol does its work by scripts on one node.
type Scripted interface {
	driver.Protocol
	driver.Notifier
	driver.Node
	Scripts() []*driver.Script // all that it sends
}

// CheckScripted is the Check of a protocol of scripts: it looks at the server, loads the scripts, asks for every right that
// they need on keys that nobody else uses, and tries the way to wait that Options name.
func CheckScripted(ctx context.Context, o strategy.Options, p Scripted, needed func(driver.Claim) []Right) error {
	return CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := LoadScripts(ctx, c.Due, p, p.Scripts()...); err != nil {
			return err
		}
		if err := CheckScripts(ctx, c.Due, p, needed(c)...); err != nil {
			return err
		}
		return CheckWatch(ctx, c, o.Wait, p)
	})
}

// CheckNode returns nil if a Redis can be relied on to keep locks: it answers, is a primary, has
// loaded its data, does not evict keys, and is not full. A server that does not report these passes.
func CheckNode(ctx context.Context, due time.Time, n driver.Node) error {
	info, refused, err := infoOf(ctx, due, n)
	if err != nil || refused != nil {
		return err // one that refuses answers, and says nothing of itself
	}
	return errors.Join(faultsOf(n.Name(), info)...)
}

// CheckNodeStrictly is [CheckNode], and a server that does not say what it is does not pass.
func CheckNodeStrictly(ctx context.Context, due time.Time, n driver.Node) error {
	const unseen = "%s: does not say whether it is a replica, may evict locks or is full: "
	info, refused, err := infoOf(ctx, due, n)
	switch {
	case err != nil:
		return err
	case forbidden(refused):
		return fmt.Errorf(unseen+"allow +info", n.Name())
	case refused != nil:
		return fmt.Errorf(unseen+"%w", n.Name(), refused)
	}
	faults := faultsOf(n.Name(), info)
	for _, field := range []string{"role", "maxmemory", "maxmemory_policy"} {
		if info[field] == "" {
			faults = append(faults, fmt.Errorf(unseen+"its INFO has no %s", n.Name(), field))
			break
		}
	}
	return errors.Join(faults...)
}

// infoOf returns what a Redis says of itself, or how it refuses to.
func infoOf(ctx context.Context, due time.Time, n driver.Node) (info map[string]string, refused, err error) {
	reply, err := n.Do(ctx, due, "INFO", "default")
	if errors.Is(err, strategy.ErrRefused) {
		return nil, err, nil
	}
	if err != nil {
		return nil, nil, err
	}
	text, ok := reply.([]byte)
	if !ok {
		return nil, nil, BadReply(n.Name(), reply)
	}
	info = map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info, nil, nil
}

// faultsOf says why a Redis, of this name, cannot be relied on.
func faultsOf(name string, info map[string]string) (faults []error) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: "+format, append([]any{name}, args...)...))
	}
	if role := info["role"]; role != "" && role != "master" {
		fault("is a %s: give the address of the primary", contract.Printable(role))
	}
	if info["loading"] == "1" {
		fault("is loading its data: try again when it has")
	}
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(info[field], 10, 64)
		return n
	}
	limit, policy := number("maxmemory"), info["maxmemory_policy"]
	switch used := number("used_memory") - number("mem_not_counted_for_evict"); {
	case info["maxmemory"] == "" || info["maxmemory"] == "0" || policy == "":
	case policy != "noeviction":
		fault("may evict locks (maxmemory-policy %s): set it to noeviction", contract.Printable(policy))
	case limit > 0 && used >= limit:
		fault("is full (used_memory %d, maxmemory %d), and grants no lock: raise maxmemory, or delete keys that nobody needs", used, limit)
	}
	return faults
}

// CheckClaim is the claim of a lock that nobody has: its name begins with "check:" and is used once.
func CheckClaim(o strategy.Options) driver.Claim {
	id := token.New("", false)
	name := "check:" + id
	return driver.Claim{Name: name, Key: o.Key(name), Token: id, Owner: id, TTL: o.TTL, FenceTTL: max(o.FenceTTL, 0), Due: time.Now().Add(o.OpTimeout)}
}

// A Right is what the scripts of a protocol do with one of a lock's keys.
type Right struct {
	Key      string
	Commands []string // such as "GET"; "TIME" and the like are of no key
	Channel  string   // to which they PUBLISH, if that is one of the commands
}

var (
	//go:embed rights.lua
	rightsLua string

	rights = driver.NewScript("rights", rightsLua)

	// A user with EVALSHA alone is stuck when the server has forgotten the scripts. This source is not
	// Lua, so the server keeps nothing of it, and it is sent in full each time.
	noLua = driver.NewScript("no Lua", "no Lua")
)

// Scripts are all that a protocol sends: those that its own method Scripts returns, and that of CheckScripts. nil: it sends
// none. `locks script` prints them.
func Scripts(p driver.Protocol) []*driver.Script {
	s, ok := p.(interface{ Scripts() []*driver.Script })
	if !ok {
		return nil
	}
	return append(s.Scripts(), rights)
}

// LoadScripts has a server load the scripts of a protocol, and that of CheckScripts, so that no client meets with
// NOSCRIPT at the first locks: programs count such errors, and may stop calling. It needs one right more than the
// locks, and a server that refuses it costs nothing but that. Of a cluster one master loads them.
func LoadScripts(ctx context.Context, due time.Time, n driver.Node, scripts ...*driver.Script) error {
	for _, s := range append([]*driver.Script{rights}, scripts...) {
		if _, err := n.Do(ctx, due, "SCRIPT", "LOAD", s.Source()); errors.Is(err, strategy.ErrRefused) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// CheckScripts returns nil if n allows scripts what they need. It changes nothing. The keys of the
// rights are those of a [CheckClaim]. If something is forbidden, the error is [strategy.ErrRefused] and
// names what to allow.
func CheckScripts(ctx context.Context, due time.Time, n driver.Node, needed ...Right) error {
	var all refusals
	for _, r := range needed {
		args := []any{r.Channel}
		for _, cmd := range r.Commands {
			args = append(args, cmd)
		}
		reply, err := n.Eval(ctx, due, rights, []string{r.Key}, args...)
		if errors.Is(err, strategy.ErrRefused) {
			all.add(err, "+evalsha and +eval", pattern(r.Key))
			continue
		}
		if err != nil {
			return err
		}
		if err := all.read(n, r, reply); err != nil {
			return err
		}
	}
	if len(all) > 0 || len(needed) == 0 {
		return all.error()
	}
	if _, err := n.Eval(ctx, due, noLua, []string{needed[0].Key}); forbidden(err) {
		return fmt.Errorf("%w (allow +eval: the server forgets scripts)", err)
	}
	return nil
}

// checked finds in a key what names a [CheckClaim] there: its token is used once, and the rule of an ACL has a star there.
var checked = regexp.MustCompile(`check:([0-9a-f-]{36})`)

// pattern is how a rule names a key or channel of a CheckClaim, with the default [strategy.Options].Key.
func pattern(key string) string {
	if m := checked.FindStringSubmatch(key); m != nil {
		key = strings.NewReplacer(m[0], "*", m[1], "*").Replace(key)
	}
	return key
}

// A refusal is what a server has said, once, of several keys or of several commands on one key, and what to allow.
type refusal struct {
	err       error
	allow, on []string
}

type refusals []refusal

func (rs *refusals) add(err error, allow, on string) {
	for i := range *rs {
		r := &(*rs)[i]
		switch {
		case r.err.Error() != err.Error():
		case slices.Equal(r.allow, []string{allow}):
			r.on = append(r.on, on)
			return
		case slices.Equal(r.on, []string{on}):
			r.allow = append(r.allow, allow)
			return
		}
	}
	*rs = append(*rs, refusal{err, []string{allow}, []string{on}})
}

func (rs refusals) error() error {
	var errs []error
	for _, r := range rs {
		allow := fmt.Sprintf("%s on %s", strings.Join(r.allow, ", "), strings.Join(r.on, ", "))
		switch {
		case deniesKey.MatchString(r.err.Error()):
			allow = "the keys ~" + strings.Join(r.on, ", ~")
		case deniesChannel.MatchString(r.err.Error()):
			allow = "the channels &" + strings.Join(r.on, ", &")
		}
		errs = append(errs, fmt.Errorf("%w (allow %s)", r.err, allow))
	}
	return errors.Join(errs...)
}

// read takes in what rights.lua returns.
func (rs *refusals) read(n driver.Node, r Right, reply any) error {
	said, ok := reply.([]any)
	if !ok || len(said)%2 != 0 {
		return BadReply(n.Name(), reply)
	}
	for i := 0; i < len(said); i += 2 {
		cmd, ok := said[i].([]byte)
		why, ok2 := said[i+1].([]byte)
		if !ok || !ok2 {
			return BadReply(n.Name(), reply)
		}
		on := pattern(r.Key)
		if string(cmd) == "PUBLISH" {
			on = "the channel " + pattern(r.Channel)
		}
		words := fmt.Sprintf("NOPERM scripts of this user may not run %s", cmd)
		if len(why) > 0 {
			words += fmt.Sprintf(": %s", why)
		}
		err := &strategy.ServerError{Node: n.Name(), Kind: strategy.ErrRefused, Err: errors.New(words)}
		rs.add(err, "+"+strings.ToLower(string(cmd)), on)
	}
	return nil
}

// CheckCommands returns nil if n accepts these commands on a key, for protocols without scripts. Each
// is a name and its arguments after the key. The key is that of a [CheckClaim]. Choose arguments that
// change nothing.
func CheckCommands(ctx context.Context, due time.Time, n driver.Node, key string, cmds ...[]any) error {
	var all refusals
	for _, cmd := range cmds {
		name := cmd[0].(string)
		_, err := n.Do(ctx, due, name, key, cmd[1:]...)
		if errors.Is(err, strategy.ErrRefused) {
			all.add(err, "+"+strings.ToLower(name), pattern(key))
		} else if err != nil {
			return err
		}
	}
	return all.error()
}

// CheckWatch returns nil if the way to wait that Options name is available. WaitBest needs none of
// them.
func CheckWatch(ctx context.Context, c driver.Claim, w strategy.Wait, p driver.Notifier) error {
	if w != strategy.WaitNotification && w != strategy.WaitQueue {
		return nil
	}
	if w == strategy.WaitQueue {
		c.Line = c.Token
	}
	stop, err := p.Watch(ctx, c, func(driver.Notification) {})
	if err != nil {
		return fmt.Errorf("%w (Options.Wait is %v: allow +subscribe, +unsubscribe and the channels of %s, or set it to WaitBest or WaitPoll)", err, w, pattern(c.Key))
	}
	stop()
	return nil
}

// forbidden reports whether the server's ACL is why it refuses.
func forbidden(err error) bool {
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && said.Err != nil && Forbidden(said.Err.Error())
}

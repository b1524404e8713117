package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// listing is what the flags and arguments of list say.
type listing struct {
	connection
	json, watch bool
	every       time.Duration
	pattern     string // of keys
}

func listCommand() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list [PATTERN]",
		Short: "List the locks that are held",
		Long: `List shows the locks that are held, sorted by name: when the holder of each asked for it, the
time until it expires unless renewed, how many processes wait for it in the servers' queue,
and who the holder is. PATTERN selects names. List never changes anything.`,
		Example: `  locks list --redis localhost:6379
  locks list 'deploy/*' --watch
  locks list --json | jq '.[] | select(.queue | length > 0)'   # somebody waits for them`,
		Annotations: parts(`   0  the list was printed, also if no lock is held
   2  the flags or arguments are wrong
  69  the servers do not answer, or refuse
With --watch, list goes on if the servers do not answer, until a signal ends it: 128 + n for
signal n.`,
			`In PATTERN, * stands for any text, ? for any byte, [ab] for one of these, and a backslash
takes the meaning from the next character.

It finds locks with the default key, lock:{NAME}. A lock that begins or ends meanwhile may be
missing. Of Redis, list reads the keys with SCAN, so the servers go on serving others. With
redlock it shows the locks of all servers, and a majority is enough. On a Redis Cluster
it shows the locks of the one server that it asks: ask each.

ASKED, in JSON "since", is by the holder's clock. The time since then counts that for which
the holder itself waited for the lock. WAITERS is "?", in JSON "queue" null, if the servers
keep no queue for --strategy, or the user lacks the right +lrange.

Locks of most strategies look alike. A key that has another form than a lock of --strategy is
listed with what it holds, or with its type.`),
		Args:    atMostOne("pattern"),
		PreRunE: func(cmd *cobra.Command, args []string) error { return l.check(cmd, args) },
		RunE:    cli.Does(l.run),
	}
	f := cmd.Flags()
	f.BoolVar(&l.json, "json", false, "print it as JSON")
	f.BoolVar(&l.watch, "watch", false, "print it again and again; a terminal is cleared first")
	everyFlag(f, &l.every)
	l.strictFlag(cmd)
	l.strategyFlag(cmd)
	l.connection.flags(cmd)
	return cmd
}

func (l *listing) check(cmd *cobra.Command, args []string) error {
	l.pattern = strategy.DefaultKey("*")
	if len(args) > 0 {
		if args[0] == "" {
			return errors.New("the pattern is empty: leave it out to list all locks")
		}
		l.pattern = strategy.DefaultKey(args[0])
	}
	if given := cli.Given(cmd.Flags().Changed, "every"); len(given) > 0 && !l.watch {
		return errors.New("--every without --watch: the list is printed once")
	}
	if err := checkEvery(l.every); err != nil {
		return err
	}
	if err := l.connection.check(cmd); err != nil {
		return err
	}
	if _, err := matches(l.pattern, ""); err != nil && l.elsewhere {
		return fmt.Errorf("the pattern %s: a [ has no ], or nothing is behind a backslash", plain(args[0]))
	}
	return nil
}

func (l *listing) run(cmd *cobra.Command) error {
	if err := l.examineFor(cmd); err != nil {
		return err
	}
	return l.using(cmd, options(usualTTL), func(s strategy.Strategy) error {
		nodes := l.nodes()
		defer closeAll(nodes)
		if l.watch {
			return l.repeat(cmd, s, nodes)
		}
		return l.show(cmd, cmd.OutOrStdout(), s, nodes)
	})
}

// repeat prints the list until a signal comes.
func (l *listing) repeat(cmd *cobra.Command, s strategy.Strategy, nodes []driver.Node) error {
	out := cmd.OutOrStdout()
	clear := ""
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		clear = "\x1b[H\x1b[2J"
	}
	again := time.NewTicker(l.every)
	defer again.Stop()
	for {
		page := bytes.NewBufferString(clear) // at once, or it would flicker
		if !l.json {
			fmt.Fprintln(page, time.Now().Format(time.DateTime))
		}
		failed := l.show(cmd, page, s, nodes)
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		if _, err := page.WriteTo(out); err != nil {
			return err
		}
		if failed != nil {
			note(cmd, "%v", errors.Unwrap(failed))
		}
		select {
		case <-cmd.Context().Done():
		case <-again.C:
		}
	}
}

// show prints the list once.
func (l *listing) show(cmd *cobra.Command, out io.Writer, s strategy.Strategy, nodes []driver.Node) error {
	locks, err := l.list(cmd, s, nodes)
	if err != nil {
		return err
	}
	if len(locks) == 0 {
		note(cmd, "no lock is held whose key matches %s", plain(l.pattern))
	}
	switch {
	case l.json:
		return printJSON(out, locks, "  ")
	case len(locks) == 0:
		return nil
	}
	return printList(out, locks, time.Now())
}

// A listed is one lock of the list. Its JSON is for programs: fields are added, not changed.
type listed struct {
	report
	Problem string `json:"problem,omitempty"` // why the list does not say whether it is held, and by whom
}

func (l *listing) list(cmd *cobra.Command, s strategy.Strategy, nodes []driver.Node) ([]listed, error) {
	ctx := cmd.Context()
	at, err := l.find(cmd, s, nodes)
	if err != nil {
		return nil, err
	}
	locks := []listed{}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		info, err := s.Inspect(ctx, name)
		switch {
		case err == nil && info.Held:
			locks = append(locks, listed{report: l.reportOf(ctx, info)})
		case err == nil: // it has ended, or a minority of redlock's servers has it
		case rediskit.WrongType(err.Error()):
			kind, err := redis.String(at[name].Do(ctx, due(), "TYPE", strategy.DefaultKey(name)))
			if err != nil {
				return nil, unavailable(ctx, l.explained(name, err))
			}
			if kind == "none" { // it has ended meanwhile
				continue
			}
			locks = append(locks, unclear(name, fmt.Sprintf("it, or a key that belongs to it, is not of a %s lock: the type of its key is %s", l.strategy, contract.Printable(kind))))
		case strings.Contains(err.Error(), noLock):
			_, what, _ := strings.Cut(err.Error(), noLock)
			locks = append(locks, unclear(name, fmt.Sprintf("not a %s lock: %s", l.strategy, what)))
		case strings.Contains(err.Error(), noFence):
			_, what, _ := strings.Cut(err.Error(), noFence)
			locks = append(locks, unclear(name, what))
		case errors.Is(err, strategy.ErrNoQuorum):
			locks = append(locks, unclear(name, "too few servers answer: "+l.explained(name, err).Error()))
		default:
			return nil, unavailable(ctx, l.explained(name, err))
		}
	}
	return locks, nil
}

// These words begin an error that is about one lock: it is not what its strategy makes.
const (
	noLock  = "NOLOCK " // what the key holds
	noFence = "FENCE "  // what the fence counter holds
)

func unclear(name, problem string) listed {
	return listed{report{Name: name, Key: strategy.DefaultKey(name), Queue: []waiter{}}, problem}
}

// find returns the names of the locks that the servers may have, and the server of Redis that has each. A lock that is held is
// on a majority of redlock's servers, so on one of any majority.
func (l *listing) find(cmd *cobra.Command, s strategy.Strategy, nodes []driver.Node) (map[string]driver.Node, error) {
	at := map[string]driver.Node{}
	if store, ok := s.(opened); ok {
		keys, err := store.keys(cmd.Context())
		if err != nil {
			return nil, unavailable(cmd.Context(), l.explained("", err))
		}
		for _, key := range keys {
			name, isLock := nameOf(key)
			if matched, _ := matches(l.pattern, key); isLock && matched {
				at[name] = nil
			}
		}
		return at, nil
	}
	var failed []error
	for i, n := range nodes {
		names, err := scan(cmd.Context(), n, l.pattern)
		if err != nil && len(nodes) > 1 && n.Name() == driver.Unnamed {
			err = fmt.Errorf("node %d: %w", i+1, err)
		}
		if err != nil {
			failed = append(failed, errors.New(l.addressed(err.Error())))
		}
		for _, name := range names {
			at[name] = n
		}
	}
	if len(failed) > (len(nodes)-1)/2 {
		return nil, unavailable(cmd.Context(), errors.Join(failed...))
	}
	for _, err := range failed {
		note(cmd, "note: a majority of the servers answers, but not all: %v", err)
	}
	return at, nil
}

// scan returns the names of the locks that a server may have.
func scan(ctx context.Context, n driver.Node, pattern string) (names []string, err error) {
	for cursor := "0"; ; {
		page, err := redis.Values(n.Do(ctx, due(), "SCAN", cursor, "MATCH", pattern, "COUNT", 1000))
		if err != nil {
			return nil, err
		}
		var keys []string
		if _, err := redis.Scan(page, &cursor, &keys); err != nil {
			return nil, err
		}
		for _, key := range keys {
			if name, ok := nameOf(key); ok {
				names = append(names, name)
			}
		}
		if cursor == "0" {
			return names, nil
		}
	}
}

// due is when a request that begins now has to be answered.
func due() time.Time { return time.Now().Add(options(usualTTL).OpTimeout) }

// nameOf is the inverse of [strategy.DefaultKey]. ok is false for all other keys, such as queues and fences.
func nameOf(key string) (name string, ok bool) {
	name = strings.TrimSuffix(strings.TrimPrefix(key, "lock:{"), "}")
	for escaped, first := range map[string]string{"%7D": "}", "%25": "%"} {
		if rest, cut := strings.CutPrefix(name, escaped); cut {
			name = first + rest
			break
		}
	}
	return name, checkName(name) == nil && strategy.DefaultKey(name) == key
}

func printList(w io.Writer, locks []listed, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tASKED\tTTL\tWAITERS\tHELD BY")
	for _, l := range locks {
		asked, ttl, waiters, by := "", "", "", "("+l.Problem+")"
		if l.Problem == "" {
			if waiters, by = "?", holderOf(l.Token); l.Queue != nil {
				waiters = fmt.Sprint(len(l.Queue))
			}
			if l.Since != nil {
				asked = now.Sub(*l.Since).Round(time.Second).String() + " ago"
			}
			if ttl = "never"; *l.TTL >= 0 {
				ttl = (time.Duration(*l.TTL) * time.Millisecond).Round(time.Second).String()
			}
			if l.Holds > 1 {
				by += fmt.Sprintf(", and %d holds in all", l.Holds)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", plain(l.Name), cmp.Or(asked, "–"), cmp.Or(ttl, "–"), cmp.Or(waiters, "–"), by)
	}
	return t.Flush()
}

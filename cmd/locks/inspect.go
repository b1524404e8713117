package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// inspection is what the flags and arguments of inspect say.
type inspection struct {
	connection
	json bool
}

func inspectCommand() *cobra.Command {
	var i inspection
	cmd := &cobra.Command{
		Use:   "inspect NAME",
		Short: "Show who holds a lock, and who waits for it",
		Long: `Inspect shows who holds the lock NAME, when the holder asked for it, and until when it holds
it unless it is renewed. It shows the last fence and, if the strategy has a queue, the waiters
in their order. It never changes anything.`,
		Example: `  locks inspect deploy/web --redis localhost:6379
  locks inspect nightly --json | jq .holder.host`,
		Annotations: parts(`   0  the lock is held, or free
   2  the flags or arguments are wrong
  69  the servers do not answer, or refuse`,
			`Give --strategy the name of the holder's strategy. The key is the default one, lock:{NAME}:
inspect does not find the lock of a program that sets Options.Key.

Of each process that waits, the queue has one waiter. Some may have died. If the servers keep
no queue for the strategy, or the user lacks the right +lrange, it is "?", in JSON null. Host,
process and label are what holders say of themselves, as locks exec does. "asked", in JSON
"since", is the time at which the holder asked for the lock, by the holder's clock. It may
have waited long before it got the lock.

A server that evicts keys may forget a lock: inspect warns of it, and with --strict it
refuses. A replica may not know of a lock: inspect never says what a replica has.`),
		Args:    aName,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return i.connection.check(cmd) },
		RunE:    cli.Does(i.run),
	}
	cmd.Flags().BoolVar(&i.json, "json", false, "print it as JSON")
	i.strictFlag(cmd)
	i.strategyFlag(cmd)
	i.connection.flags(cmd)
	return cmd
}

func (i *inspection) run(cmd *cobra.Command) error {
	if err := i.examineFor(cmd); err != nil {
		return err
	}
	return i.using(cmd, options(usualTTL), func(s strategy.Strategy) error {
		info, err := i.inspect(cmd.Context(), s, cmd.Flags().Arg(0))
		if err != nil {
			return err
		}
		r := i.reportOf(cmd.Context(), info)
		if i.json {
			return printJSON(cmd.OutOrStdout(), r, "  ")
		}
		return r.print(cmd.OutOrStdout(), time.Now())
	})
}

// using runs fn with the strategy, and closes that. What cannot be undone is a note and does not change the exit
// status: fn may have taken the lock from a majority, while a server that was down keeps its key until the
// TTL ends.
func (c *connection) using(cmd *cobra.Command, o strategy.Options, fn func(strategy.Strategy) error) error {
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventUndoFailed {
			note(cmd, "note: not all servers have answered: lock %q: token %q may hold it until its TTL ends: %s",
				e.Name, strategy.ShortToken(e.Token), c.addressed(e.Err.Error()))
		}
	}
	s, err := c.open(o)
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(s)
}

// queueKeys are how the keys of those strategies end whose servers know who waits.
var queueKeys = map[string]string{"fairqueue": ":queue", withPermits: ":waiters", withReaders: ":readers"}

// noQueue says why Inspect does not see who waits; empty: it does. It asks the server once.
func (c *connection) noQueue(ctx context.Context) string {
	if c.unseen != nil {
		return *c.unseen
	}
	c.unseen = new(string)
	suffix, ok := queueKeys[c.strategy]
	switch {
	case c.elsewhere: // Inspect sees it
		return ""
	case !ok:
		*c.unseen = "the servers keep no queue for " + c.strategy
		return *c.unseen
	}
	nodes := c.nodes()
	defer closeAll(nodes)
	if _, err := nodes[0].Do(ctx, due(), "LRANGE", strategy.DefaultKey("check:queue")+suffix, 0, 0); err != nil && rediskit.Forbidden(err.Error()) {
		*c.unseen = "this user may not see who waits: allow +lrange"
	}
	return *c.unseen
}

// inspect gives what went wrong its exit status, unless a signal did.
func (c *connection) inspect(ctx context.Context, s strategy.Strategy, name string) (strategy.Info, error) {
	info, err := s.Inspect(ctx, name)
	return info, unavailable(ctx, c.explained(name, err))
}

func unavailable(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &cli.Exit{Status: exitUnavailable, Err: err}
}

// A report is what inspect shows. Its JSON is for programs: fields are added, not changed.
type report struct {
	Name   string     `json:"name"`
	Key    string     `json:"key"`
	Held   bool       `json:"held"`
	Token  string     `json:"token,omitempty"`
	Owner  string     `json:"owner,omitempty"` // where it is not the token
	Holder *holder    `json:"holder,omitempty"`
	Since  *time.Time `json:"since,omitempty"`  // when the holder asked
	TTL    *int64     `json:"ttl_ms,omitempty"` // held: until the lock expires; -1: never
	Fence  uint64     `json:"fence,omitempty"`
	Holds  int        `json:"holds,omitempty"`
	Queue  []waiter   `json:"queue"` // nil: unknown

	unseen string // why the queue is unknown
}

// A holder is what a token says of its process.
type holder struct {
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
}

// A waiter is one place in the queue.
type waiter struct {
	Token  string  `json:"token"`
	Holder *holder `json:"process,omitempty"`
}

func (c *connection) reportOf(ctx context.Context, info strategy.Info) report {
	r := report{Name: info.Name, Key: info.Key, Held: info.Held, Fence: info.Fence}
	if len(info.Queue) == 0 {
		r.unseen = c.noQueue(ctx)
	}
	if r.unseen == "" {
		r.Queue = []waiter{}
	}
	if info.Held {
		r.Token, r.Holds, r.Holder = info.Token, info.Holds, processOf(info.Label)
		if info.Owner != info.Token {
			r.Owner = info.Owner
		}
		if !info.Since.IsZero() {
			since := info.Since.UTC()
			r.Since = &since
		}
		ttl := info.TTL.Milliseconds()
		if info.TTL < 0 {
			ttl = -1
		}
		r.TTL = &ttl
	}
	for _, token := range info.Queue {
		r.Queue = append(r.Queue, waiter{token, processOf(labelOf(token))})
	}
	return r
}

// labelOf returns the label of a token.
func labelOf(text string) string {
	label, _ := token.Parse(text)
	return label
}

// processOf reads a label, which may be anybody's; nil: there is none.
func processOf(label string) *holder {
	if label == "" {
		return nil
	}
	if h, ok := (strategy.Info{Label: label}).Holder(); ok {
		return &holder{h.Host, h.PID, h.Label}
	}
	return &holder{Label: label}
}

// holderOf says whose a token is, for people and their logs.
func holderOf(token string) string {
	if h := processOf(labelOf(token)); h != nil {
		return h.String()
	}
	return fmt.Sprintf("%.100q", strategy.ShortToken(token))
}

// String quotes what is not plain: it comes from the server, and goes to a terminal.
func (h *holder) String() string {
	if h.Host == "" {
		return fmt.Sprintf("%.300q", h.Label)
	}
	s := fmt.Sprintf("%s, process %d", plain(h.Host), h.PID)
	if h.Label != "" {
		s += fmt.Sprintf(", %.300q", h.Label)
	}
	return s
}

// plain is the text, quoted if it has anything but printable characters, or if its ends cannot be seen.
func plain(s string) string {
	if quoted := fmt.Sprintf("%.300q", s); quoted != `"`+s+`"` || strings.TrimSpace(s) != s || s == "" {
		return quoted
	}
	return s
}

func (r report) print(w io.Writer, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, name+"\t"+format+"\n", args...) }
	line("lock", "%s", plain(r.Name))
	line("key", "%s", plain(r.Key))
	if r.Held {
		by := "(its token does not say)"
		if r.Holder != nil {
			by = r.Holder.String()
		}
		line("held by", "%s", by)
		if r.Since != nil {
			line("asked", "%s, %v ago", r.Since.Format(time.RFC3339), now.Sub(*r.Since).Round(time.Second))
		}
		if *r.TTL < 0 {
			line("expires", "never")
		} else {
			line("expires", "in %v, unless renewed", time.Duration(*r.TTL)*time.Millisecond)
		}
		if r.Holds > 1 {
			line("holds", "%d", r.Holds)
		}
		if r.Owner != "" {
			line("owner", "%s", plain(r.Owner))
		}
		line("token", "%s", plain(r.Token))
	} else {
		line("held by", "nobody")
	}
	if r.Fence > 0 {
		line("fence", "%d", r.Fence)
	}
	if r.Queue == nil {
		line("queue", "? (%s)", r.unseen)
	}
	for i, q := range r.Queue {
		name := strings.Repeat(" ", len("queue"))
		if i == 0 {
			name = "queue"
		}
		line(name, "%s", holderOf(q.Token))
	}
	return t.Flush()
}

func printJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escaped(b.Bytes()))
	return err
}

// escaped writes as \u… what JSON leaves as it is, and a terminal obeys: DEL, C1, and characters that turn the direction of
// writing.
func escaped(text []byte) (plain []byte) {
	for _, r := range string(text) {
		switch {
		case r < 0x7f || unicode.IsPrint(r):
			plain = utf8.AppendRune(plain, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			plain = fmt.Appendf(plain, `\u%04x\u%04x`, high, low)
		default:
			plain = fmt.Appendf(plain, `\u%04x`, r)
		}
	}
	return plain
}

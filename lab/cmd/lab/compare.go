package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/compare/stores"
)

const (
	usualDuration = 1500 * time.Millisecond
	quickDuration = 300 * time.Millisecond
	leastDuration = 50 * time.Millisecond
	mostDuration  = time.Hour
)

// comparison is what the flags of compare say.
type comparison struct {
	servers
	strategies     []string
	duration       time.Duration
	quick          bool
	json, markdown bool

	variants []subjects.Variant
	stores   []compare.Store
}

func compareCommand() *cobra.Command {
	var c comparison
	var all []string
	var list, aside strings.Builder
	for _, v := range subjects.All() {
		all = append(all, v.Name)
		which := &list
		if v.Aside {
			which = &aside
		}
		fmt.Fprintf(which, "  %-17s  %s\n", v.Name, v.Summary)
	}
	if aside.Len() > 0 {
		list.WriteString("Only when asked for:\n" + aside.String())
	}
	for _, s := range stores.Children() {
		all = append(all, s.Name)
	}
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Show what each strategy guarantees, costs, and how fast it is",
		Long: `Compare holds the strategies against each other, in about two minutes: what each
guarantees (trials of the conformance suite, held while you wait; a weakness is
shown, not believed), what each request costs, how fast it is alone, how fast a lock
goes from one process to the next, and what happens when 1, 8 and 64 contend. At the
end it says which one to take for what.

The Redis is the most real one available: what REDIS_ADDRS names, else a Docker
container, else a local redis-server, else an embedded imitation, whose timings mean
nothing. The first line says which it is, and why. Containers and processes that
were started go away at the end, also after Ctrl-C. On a Redis of your own (--redis,
or REDIS_ADDRS, which takes a password, too) the locks have names that nobody else
uses. Nothing of them stays, unless there are more than 100,000 keys. But the server
is put under load. Compare leaves out a strategy that takes more servers than you
give; the others take the first.

If POSTGRES_URL or ETCD_ENDPOINTS (host:port,…) names a server, the lock in that store
has a column, too. Its requests are not counted, and the trials that need a hook into
them are left to its own tests. PostgreSQL gets the schema "locks". The trials on etcd take
a minute, since its leases last 2 s or more.

Exit status: 0 if it compared; 1 if it could not, or if a trial ended as it should
not; 69 if the servers cannot be reached or used; 2 if the flags are wrong; 128 + n
if signal n ended it.

Strategies:
` + strings.TrimRight(list.String(), "\n"),
		Example: `  lab compare                                    # everything, about two minutes
  lab compare --quick                            # a first impression, under a minute
  lab compare --strategy luascript --strategy setnxpx
  lab compare --redis localhost:6379             # on one Redis of your own
  lab compare --json > comparison.json           # for programs
  lab compare --markdown                         # the guarantees alone`,
		Args:    cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return c.check() },
		RunE:    cli.Does(c.run),
	}
	f := cmd.Flags()
	f.SortFlags = false
	c.servers.flags(cmd)
	f.StringArrayVar(&c.strategies, "strategy", nil, "compare only this `name`; again for more")
	f.DurationVar(&c.duration, "duration", usualDuration, "how long each measurement of a strategy takes")
	f.BoolVar(&c.quick, "quick", false, "the same as --duration "+quickDuration.String())
	f.BoolVar(&c.json, "json", false, "print everything as JSON: measurements, evidence, histories")
	f.BoolVar(&c.markdown, "markdown", false, "print the guarantees as a Markdown table, and measure nothing")
	cmd.MarkFlagsMutuallyExclusive("json", "markdown")
	cmd.MarkFlagsMutuallyExclusive("duration", "quick", "markdown") // which measures nothing
	cmd.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// check finds what makes no sense before anything is started.
func (c *comparison) check() error {
	if err := c.servers.check(); err != nil {
		return err
	}
	if c.quick {
		c.duration = quickDuration
	}
	if c.duration < leastDuration || c.duration > mostDuration {
		return fmt.Errorf("--duration is %v: allowed are %v to %v", c.duration, leastDuration, mostDuration)
	}
	return c.choose()
}

// choose finds the variants by name, and keeps them in teaching order.
func (c *comparison) choose() error {
	if len(c.strategies) == 0 {
		c.variants = subjects.Compared()
		return nil
	}
	all := subjects.All()
	var names []string
	for _, v := range all {
		names = append(names, v.Name)
		if slices.Contains(c.strategies, v.Name) {
			c.variants = append(c.variants, v)
		}
	}
	for _, s := range stores.Children() {
		names = append(names, s.Name)
	}
	for _, s := range c.strategies {
		if !slices.Contains(names, s) {
			return fmt.Errorf("there is no strategy %q: there are %s", s, strings.Join(names, ", "))
		}
	}
	return nil
}

func (c *comparison) run(cmd *cobra.Command) (err error) {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	words := stdout // for people
	if c.json || c.markdown {
		words = stderr
	}
	farm, err := c.open(ctx, words, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, farm.Close()) }()
	var closeStores func()
	if c.stores, closeStores, err = stores.FromEnv(ctx, c.strategies); err != nil {
		return err
	}
	defer closeStores()
	nodes, err := farm.AtMost(ctx, max(subjects.Most(c.variants), 1))
	if err != nil {
		return c.gaveUp(ctx, err)
	}
	if err := c.enough(len(nodes)); err != nil {
		return err
	}
	if err := c.known(ctx, nodes); err != nil {
		return c.gaveUp(ctx, err)
	}
	report, err := c.measure(ctx, farm, nodes, stderr)
	if c.markdown && len(report.LeftOut) > 0 {
		fmt.Fprintln(words, tooFew(report.LeftOut))
	}
	if e := c.show(stdout, report); e != nil {
		return errors.Join(err, e)
	}
	if err != nil {
		return c.gaveUp(ctx, err)
	}
	if all := surprises(report); len(all) > 0 {
		return fmt.Errorf("%d of the trials and measurements ended as they should not, see above: %s", len(all), strings.Join(all, "; "))
	}
	return nil
}

func (c *comparison) measure(ctx context.Context, farm *redistest.Farm, nodes []*redistest.Server, stderr io.Writer) (*compare.Report, error) {
	config := compare.Config{
		Servers:  nodes,
		Kind:     farm.Kind(),
		Choice:   c.asAsked(farm.Choice()), // the slow work may have shown that it must be another
		Variants: c.variants,
		Stores:   c.stores,
		Version:  cli.Version(),
		Each:     c.duration,
	}
	if c.markdown {
		config.Each = 0
	}
	p := startProgress(stderr)
	defer p.end()
	config.Progress = p.set
	return compare.Run(ctx, config)
}

// enough is an error if a strategy that was asked for by its name takes more servers
// than there are. The others are left out.
func (c *comparison) enough(servers int) error {
	for _, v := range c.variants {
		if len(c.strategies) > 0 && v.Servers > servers {
			return errors.New(c.asAsked(fmt.Sprintf("%s takes %d servers, REDIS_ADDRS names %d. %s", v.Name, v.Servers, servers, waysToMore)))
		}
	}
	return nil
}

// known adds the strategies whose commands the servers know, or is an error if they do not know those of a
// strategy that was asked for by its name.
func (c *comparison) known(ctx context.Context, nodes []*redistest.Server) (err error) {
	if len(c.strategies) == 0 {
		c.variants, err = subjects.ComparedOn(ctx, nodes)
		return err
	}
	for _, v := range c.variants {
		known, err := v.Known(ctx, nodes)
		if err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("%s takes servers that know %s. Ways out: give newer ones by --redis, or set REDIS_SERVER=%s",
				v.Name, strings.Join(v.Commands, " or "), v.Edition)
		}
	}
	return nil
}

func (c *comparison) show(w io.Writer, r *compare.Report) error {
	switch {
	case c.json:
		return printJSON(w, r)
	case c.markdown:
		if r.Interrupted {
			return nil // half a table would pass for a whole one
		}
		_, err := io.WriteString(w, compare.Markdown(r.Strategies))
		return err
	}
	_, err := io.WriteString(w, render(r, lookOf(w)))
	return err
}

// surprises are the trials and measurements that ended as they should not.
func surprises(r *compare.Report) (all []string) {
	for _, s := range r.Strategies {
		for _, g := range s.Guarantees {
			for _, p := range g.Properties {
				if p.Verdict == compare.Failed {
					all = append(all, fmt.Sprintf("%s, %s: %s", s.Name, p.Name, p.Evidence))
				}
			}
		}
		for _, f := range s.Failures {
			all = append(all, fmt.Sprintf("%s, %s: %s", s.Name, f.Measurement, f.Error))
		}
	}
	return all
}

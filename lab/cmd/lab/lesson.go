package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/lessons"
)

// schooling is what the flags of lesson say.
type schooling struct {
	servers
	all, step, predict, json bool

	chosen []lessons.Lesson
}

func lessonCommand() *cobra.Command {
	var s schooling
	cmd := &cobra.Command{
		Use:   "lesson [number or name ...]",
		Short: "Show how lock designs evolved: each failure, and what fixes it",
		Long: `Lesson gives lessons on locks, from SETNX to redlock with fences: each lets a known
failure happen, and then puts the design that fixes it in the same place. Without
arguments it lists them.

The commands shown really ran, in this order, with these replies; and the verdicts
were computed from these. Clients and servers are columns, and time runs downwards. A
client's line is double while it believes it holds the lock, and dotted while it is
paused. That a lesson shows a violation is what it is for: the exit status is 0.

With --step it stops before each command, until you press Enter, and says where the
server is, so that you can look at it with redis-cli meanwhile. Locks live for half an
hour then; where a TTL has to go by, it is ended by hand.

With --predict it asks first: what will the server answer, and who believes then that
it holds the lock? It stops where there is something to predict, up to 16 times, and
says how many answers were right. Answer as redis-cli shows it, or with less: (nil) or
nil, (integer) 1 or 1. A question mark says which answers there are.

The Redis is chosen as for compare. On a Redis of your own (--redis) the lock has a
name that nobody else uses, and nothing is left there. Lessons that break servers
start their own, and are not given where there can be none.`,
		Example: `  lab lesson                    # the list
  lab lesson 8                  # one, in about a second
  lab lesson lua --step         # one by its name, command by command
  lab lesson 8 --predict        # with questions
  lab lesson --all --embedded   # all that need no real Redis
  lab lesson 8 --json           # every command and reply, for programs`,
		PreRunE: s.choose,
		RunE:    cli.Does(s.run),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&s.all, "all", false, "give all lessons")
	f.BoolVar(&s.step, "step", false, "stop before each command; Enter goes on, q ends the run")
	f.BoolVar(&s.predict, "predict", false, "ask before commands what they will come to")
	f.BoolVar(&s.json, "json", false, "print everything as JSON: events, verdicts, scripts")
	cmd.MarkFlagsMutuallyExclusive("step", "predict", "json")
	s.servers.flags(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, l := range lessons.All() {
			names = append(names, l.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// choose finds the lessons, and what cannot be done before anything is started.
func (s *schooling) choose(cmd *cobra.Command, names []string) error {
	if err := s.check(); err != nil {
		return err
	}
	switch {
	case s.all && len(names) > 0:
		return fmt.Errorf("--all gives all lessons: leave out %s, or --all", strings.Join(names, " "))
	case s.all:
		s.chosen = lessons.All()
	case len(names) == 0:
		if set := cli.Given(cmd.Flags().Changed, "all", "step", "predict", "json", "docker", "embedded", "redis"); len(set) > 0 {
			return fmt.Errorf("%s: of which lesson? 'lab lesson' lists them, and --all gives all", strings.Join(set, " and "))
		}
	}
	for _, name := range names {
		l, err := lessons.Find(name)
		if err != nil {
			return err
		}
		s.chosen = append(s.chosen, l)
	}
	return nil
}

func (s *schooling) run(cmd *cobra.Command) (err error) {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if len(s.chosen) == 0 {
		_, err := io.WriteString(stdout, renderLessons(lessons.All(), lookOf(stdout)))
		return err
	}
	words := stdout // for people
	if s.json {
		words = stderr
	}
	farm, err := s.open(ctx, words, stderr)
	if err != nil {
		return err
	}
	school := lessons.Open(farm)
	defer func() { err = errors.Join(err, school.Close(), farm.Close()) }()
	b := &board{w: words, look: lookOf(words), several: len(s.chosen) > 1, predicts: s.predict}
	if !s.json {
		school.Watch = b
	}
	if s.step || s.predict {
		b.reader = newReader(ctx, cmd.InOrStdin(), stdout)
		school.Step = b.step
	}
	results, err := s.give(ctx, school, b)
	if s.json && len(results) > 0 { // those that were given are whole, whatever became of a later one
		err = errors.Join(err, printJSON(stdout, results))
	}
	return err
}

// give gives the lessons. One that was asked for by its name is given, or it is an error; of
// all, those are that can be.
func (s *schooling) give(ctx context.Context, school *lessons.School, b *board) ([]lessons.Result, error) {
	results := []lessons.Result{}
	for _, l := range s.chosen {
		b.opens(l)
		r, err := school.Perform(ctx, l)
		var enough *enough
		switch {
		case err == nil:
			results = append(results, r)
			if !s.json {
				b.closes(l)
			}
		case errors.As(err, &enough):
			b.say("\n" + b.look.prose("", enough.Error()) + b.score())
			return results, nil
		case errors.Is(err, redistest.ErrImpossible) && s.all:
			b.say("\n" + heading(l, b.look) + b.look.prose("? ", "not given: "+s.asAsked(err.Error())+"."))
		case errors.Is(err, redistest.ErrImpossible):
			return results, errors.New(strings.TrimSuffix(s.asAsked(err.Error())+"."+s.remedy(), "."))
		default:
			return results, s.gaveUp(ctx, err)
		}
	}
	switch given := len(results); {
	case given == 0:
		return results, errors.New("no lesson could be given, see above")
	case given < len(s.chosen):
		b.say("\n" + b.look.prose("", fmt.Sprintf("%d of %d lessons were given, and those that were not say why.", given, len(s.chosen))+s.remedy()))
	}
	return results, nil
}

// remedy says what to leave out to have servers for every lesson.
func (s *schooling) remedy() string {
	for flag, set := range map[string]bool{"--redis": len(s.redis) > 0, "--embedded": s.embedded} {
		if set {
			return " Without " + flag + " such servers are started, where there is Docker or a redis-server."
		}
	}
	return ""
}

func renderLessons(all []lessons.Lesson, l look) string {
	name := 0
	for _, x := range all {
		name = max(name, textWidth(x.Name))
	}
	var b strings.Builder
	for _, x := range all {
		b.WriteString(l.prose(fmt.Sprintf("%2d  %s  ", x.Number, pad(l.paint(x.Name, text.Bold), name)), x.Title))
	}
	b.WriteString("\n" + l.prose("", fmt.Sprintf("lab lesson %[1]d, or lab lesson %[2]s, gives one; with --step command by command, with --predict with questions. lab lesson --all gives all.",
		all[len(all)/2].Number, all[len(all)/2].Name)))
	return b.String()
}

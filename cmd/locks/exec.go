package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	osexec "os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// The statuses of exec that are not its command's.
const (
	exitUnavailable   = cli.Unavailable
	exitHeld          = 75  // EX_TEMPFAIL
	exitLost          = 76  // EX_PROTOCOL
	exitNotExecutable = 126 // as shells do
	exitNotFound      = 127
)

// execution is what the flags and arguments of exec say.
type execution struct {
	connection
	ttl, wait, maxHold, grace time.Duration
	atLeast                   time.Duration
	marked                    strategy.Lease // nil: without --at-least
	until                     time.Time      // the end of wait; zero: none
	try, failFast             bool
	verbose, quiet            bool
	noRedisEnv                bool
	label                     string
	conflict                  int

	name    string
	command []string
	said    *teller
	asking  sync.WaitGroup      // for the lock and the mark; also after the time of --wait
	news    chan strategy.Event // renewals, and those that fail
	who     chan error          // who holds the lock for which exec waits
}

const execHelp = `Exec waits for the lock NAME, runs the command while it keeps the lock alive, and lets go
when the command has ended. It never starts the command without the lock. If the lock is
lost, it ends the command. It exits as the command does.`

const execExit = `The command's own; 128 + n if signal n has ended it, or exec while it waited. Besides:
   2  the flags or arguments are wrong
  69  the servers cannot be reached, refuse, or did not answer; nothing was started
  75  another holds the lock, and the wait is over (another status: -E)
  76  the lock was lost, or --max-hold was over, before the command ended; also if the
      command succeeded, and exec found the loss only at the release
 126  the command cannot be executed
 127  the command was not found
If the release fails, exec exits with the command's status and writes a warning to the
standard error.`

const execMore = `The command finds in its environment
  LOCKS_NAME      the lock's name
  LOCKS_TOKEN     the token of this hold
  LOCKS_FENCE     its fence, greater than that of every hold before: for a store that
                  refuses lesser ones (not set where the strategy has none)
  LOCKS_DEADLINE  until when the lock was surely held when the command started, such as
                  2026-01-02T03:04:05.678Z; it is renewed for as long as the command runs
The command inherits the rest of the environment as it is, with the password in it. With
--no-redis-env it does not get the variables that 'locks help servers' names. (PGPASSWORD goes
only if the lock is in PostgreSQL.)

The lock is lost if the servers forgot it, somebody took it away, or they could not be
reached for a TTL. Then, and when --max-hold is over, SIGTERM goes to the command's process
group, and SIGKILL when the grace is over. The same happens to processes that the command
leaves behind in its group when it ends: the lock is held until they are gone. A process
that has to outlive the lock must leave the group (setsid).

SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTSTP are passed on to the group. In
a terminal the command has the foreground as if it ran alone. Ctrl-Z stops exec, too, so the
lock ends with its TTL. If the lock is lost, the command is ended when it is continued.

If exec is killed or paused, another process, the watcher, ends the command's group in the
same way: at once, or a second after the lock's deadline. The lock ends with its TTL. If the
command ended by itself before the deadline, its status counts. If the watcher is killed,
too, then on Linux the command itself still gets SIGTERM, and the processes that it has
started do not.

If the servers fail at the first attempt, --wait covers that, too: exec says so, and asks
again until the time is over. Without --wait, and with --fail-fast, it ends at once. A wait
that has begun goes on while they fail. A wrong password or certificate, or a missing right,
at the first attempt ends exec at once, also with --wait. The time begins with exec, which
ends half a second after it at most, though a server does not answer.

With --at-least 30s no other exec with --at-least starts within 30 s from the start of this
one, also if the command has ended or exec was killed: it exits with 75. So a job that many
machines have on their schedule runs once for each tick, though their clocks differ a little.

With --store etcd://… the times of --ttl and --at-least are whole seconds.

With --permits 5 up to five may hold the lock at a time, each with a fence and a TTL of its
own. Give all programs that use the lock the same number.

With --read many may hold the lock at a time, as long as nobody holds it with --write. Who
writes is alone. A reader that joins others has their fence.

With redlock, give --ttl and --max-ttl the TTL and the MaxTTL of the programs that use the
same servers. The servers remember the longest TTL that anybody used: a longer one here makes
each server that restarts later wait longer before it votes. Where TTLs differ and not
all have the same MaxTTL, a server that lost its locks may vote too early.`

func execCommand() *cobra.Command {
	var e execution
	cmd := &cobra.Command{
		Use:   "exec NAME [flags] [--] COMMAND [ARGUMENT …]",
		Short: "Hold a lock while a command runs",
		Long:  execHelp,
		Example: `  export REDIS_URL=redis://localhost:6379
  locks exec nightly --try --at-least 30s -- /usr/local/bin/import # one of many machines
  locks exec deploy/web --wait 5m -- make deploy
  locks exec reports --permits 5 -- ./report         # five at a time, on all machines together
  locks exec catalog --read -- ./export              # many at a time, but not next to --write
  locks exec report --max-hold 2h --label "by cron" -- sh -c 'echo "$LOCKS_FENCE"'`,
		Annotations: parts(execExit, execMore),
		Args:        cobra.ArbitraryArgs,
		PreRunE:     func(cmd *cobra.Command, args []string) error { return e.check(cmd, args) },
		RunE:        cli.Does(e.run),
	}
	f := cmd.Flags()
	f.SetInterspersed(false) // the flags behind the command's name are the command's
	durationVar(f, &e.ttl, "ttl", "", usualTTL, "how long the servers keep the lock when nobody renews it: a `time` such as 90 (seconds), 90s or 2m")
	e.maxTTLFlag(cmd, "the longest that exec learns of")
	durationVar(f, &e.wait, "wait", "w", 0, "wait for at most this `time` (default no limit)")
	f.BoolVar(&e.failFast, "fail-fast", false, "with --wait: end at once if the servers fail at the first attempt")
	f.BoolVarP(&e.try, "try", "n", false, "do not wait")
	durationVar(f, &e.maxHold, "max-hold", "", 0, "end the command, and release, after this `time`: the TTL or more (default never)")
	durationVar(f, &e.atLeast, "at-least", "", 0, "let no other exec with --at-least start within this `time` from the start, also if the command has ended or exec was killed: longer than clocks differ (default none)")
	durationVar(f, &e.grace, "grace", "", 10*time.Second, "the `time` between SIGTERM and SIGKILL, when exec ends the command; what it does after SIGKILL, such as waiting for a disk, has no bound")
	f.StringVar(&e.label, "label", "", "a `text` that locks inspect shows, with host and process")
	e.conflict = exitHeld
	f.VarP(number{&e.conflict, 0, 255}, "conflict-exit-code", "E", "the exit `status` when another holds the lock")
	f.BoolVarP(&e.verbose, "verbose", "v", false, "say while it waits who holds the lock (the default in a terminal)")
	f.BoolVarP(&e.quiet, "quiet", "q", false, "say nothing but why exec, or the command, was ended")
	e.strictFlag(cmd)
	e.strategyFlag(cmd)
	f.BoolVar(&e.read, "read", false, "hold the lock to read: others may do so at the same time, and nobody writes; its strategy is "+withReaders)
	f.BoolVar(&e.write, "write", false, "hold it to write: nobody else holds it; its strategy is "+withReaders+", which does so without --read")
	e.connection.flags(cmd)
	f.BoolVar(&e.noRedisEnv, "no-redis-env", false, "leave "+redisVar+", "+passwordVar+" and the other variables that say how to reach the servers out of the command's environment")
	return cmd
}

// A span is a time on the command line: plain seconds, as with timeout and flock, or as Go writes it.
type span time.Duration

// String is empty for none: where that is the default, the flag's usage says what it means.
func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}

func (s *span) Type() string { return "time" }

func (s *span) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("allowed are seconds, such as 90 or 0.5, and times such as 90s, 2m or 300ms")
	}
	*s = span(d)
	return nil
}

func durationVar(f *pflag.FlagSet, p *time.Duration, name, letter string, value time.Duration, usage string) {
	*p = value
	f.VarP((*span)(p), name, letter, usage)
}

// check finds what makes no sense before anything is sent.
func (e *execution) check(cmd *cobra.Command, args []string) error {
	if errNoExec != nil {
		return errNoExec
	}
	if len(args) == 0 || cmd.ArgsLenAtDash() == 0 {
		return errors.New("want the lock's name and the command: locks exec NAME -- COMMAND")
	}
	e.name = args[0]
	if err := checkName(e.name); err != nil {
		return err
	}
	if err := cmd.ParseFlags(args[1:]); err != nil { // those between the name and the command
		return err
	}
	if help, _ := cmd.Flags().GetBool("help"); help {
		return pflag.ErrHelp
	}
	if e.command = cmd.Flags().Args(); len(e.command) == 0 {
		return errors.New("there is no command: locks exec NAME -- COMMAND")
	}
	if flag := ownFlag(cmd.Flags(), e.command[1:]); flag != "" && cmd.ArgsLenAtDash() < 0 {
		return fmt.Errorf("%s stands behind the command %s, and is a flag of exec, too: write it before --, or write -- before the command: "+
			"locks exec NAME [flags] -- COMMAND", flag, shown(e.command[0]))
	}
	if e.verbose && e.quiet {
		return errors.New("--verbose and --quiet exclude each other")
	}
	if set := cli.Given(cmd.Flags().Changed, "wait", "try"); len(set) > 1 {
		return errors.New("--wait and --try exclude each other: --try does not wait")
	}
	if e.failFast && len(cli.Given(cmd.Flags().Changed, "wait")) == 0 {
		return errors.New("--fail-fast without --wait: without it exec ends at once in any case")
	}
	switch {
	case e.ttl < contract.MinTTL || e.ttl > contract.MaxTTL || e.ttl%time.Millisecond != 0:
		return fmt.Errorf("--ttl is %v: allowed are whole milliseconds from %v to %v", e.ttl, contract.MinTTL, contract.MaxTTL)
	case cmd.Flags().Changed("wait") && e.wait <= 0:
		return fmt.Errorf("--wait is %v: allowed is more than 0; --try does not wait", e.wait)
	case cmd.Flags().Changed("max-hold") && e.maxHold < e.ttl:
		return fmt.Errorf("--max-hold is %v: allowed are the TTL of %v and more", e.maxHold, e.ttl)
	case cmd.Flags().Changed("at-least") && (e.atLeast < contract.MinTTL || e.atLeast > contract.MaxTTL || e.atLeast%time.Millisecond != 0):
		return fmt.Errorf("--at-least is %v: allowed are whole milliseconds from %v to %v", e.atLeast, contract.MinTTL, contract.MaxTTL)
	case e.atLeast > 0 && len(e.name) > contract.MaxNameLen-len(markSuffix):
		return fmt.Errorf("the lock's name has %d bytes: with --at-least allowed are 1 to %d", len(e.name), contract.MaxNameLen-len(markSuffix))
	case e.maxTTL > 0 && e.atLeast > e.maxTTL:
		return fmt.Errorf("--at-least is %v: allowed is --max-ttl, %v, at most", e.atLeast, e.maxTTL)
	case e.atLeast > 0 && (cmd.Flags().Changed("permits") || e.read):
		return fmt.Errorf("--at-least and %s exclude each other: several may start then", cli.Given(cmd.Flags().Changed, "permits", "read")[0])
	case e.grace < 0:
		return fmt.Errorf("--grace is %v: allowed are 0 (SIGKILL at once) and more", e.grace)
	}
	if most := contract.MaxLabelLen - len(strategy.ThisProcess("").String()) - 1; len(e.label) > most {
		return fmt.Errorf("--label has %d bytes: allowed are %d, with host and process", len(e.label), most)
	}
	if err := e.connection.check(cmd); err != nil {
		return err
	}
	if e.strategy == onEtcd && (e.ttl%time.Second != 0 || e.atLeast%time.Second != 0) {
		return errors.New("--ttl and --at-least with etcd: allowed are whole seconds")
	}
	if err := e.needsPermits(); err != nil {
		return err
	}
	return e.checkMaxTTL(cmd, e.ttl)
}

func (e *execution) run(cmd *cobra.Command) (err error) {
	e.said = newTeller(cmd.ErrOrStderr())
	defer e.said.end()
	program, err := find(e.command[0]) // before anybody is kept waiting
	if err != nil {
		return err
	}
	o := options(e.ttl)
	o.Label = strategy.ThisProcess(e.label).String()
	o.RetryOnError = true // a wait that has begun outlasts an outage
	e.news, e.who = make(chan strategy.Event, 16), make(chan error, 1)
	o.Observe = e.observe
	s, err := e.open(o)
	if err != nil {
		return err
	}
	lease, err := e.obtain(cmd.Context(), s, o.OpTimeout)
	if err != nil {
		return err
	}
	defer e.close(s, time.Time{})
	return e.hold(cmd.Context(), lease, program)
}

// A wait ends later than --wait says by this much at most.
const (
	answerPatience = 200 * time.Millisecond // for the answer to a request under way
	undoPatience   = 400 * time.Millisecond // for that to its undo
)

// obtain acquires the lock, and what --at-least needs. --wait covers all of that, and begins now. After an error it has
// closed s.
func (e *execution) obtain(ctx context.Context, s strategy.Strategy, opTimeout time.Duration) (_ strategy.Lease, err error) {
	defer func() {
		if err != nil {
			e.close(s, e.until)
		}
	}()
	limit := opTimeout
	late := make(chan struct{})
	if e.wait > 0 {
		e.until, limit = time.Now().Add(e.wait), min(opTimeout, e.wait/2)
		// One after the other: an exec that was paused until both were over has not listened for the answer.
		time.AfterFunc(e.wait, func() { time.AfterFunc(answerPatience, func() { close(late) }) })
	}
	if err := e.examine(ctx, limit, e.note); err != nil {
		return nil, err
	}
	type result struct {
		lease strategy.Lease
		err   error
	}
	got, over := make(chan result), make(chan struct{})
	e.asking.Go(func() {
		lease, err := e.acquire(ctx, s)
		select {
		case got <- result{lease, err}:
		case <-over:
			if err == nil {
				e.giveUp(lease, nil)
			}
		}
	})
	select {
	case r := <-got:
		return r.lease, r.err
	case <-late: // a request may take an operation time-out, whatever its context says
		close(over)
		return nil, &cli.Exit{Status: exitUnavailable, Err: fmt.Errorf("lock %q: no answer; gave up after %v", e.name, e.wait)}
	}
}

// close ends the strategy, once what was interrupted is undone. If exec was to wait until a time that has come, it
// does not wait for a server that does not answer: what is not undone lapses by itself.
func (e *execution) close(s strategy.Strategy, until time.Time) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		e.asking.Wait() // what is granted meanwhile is given up: after Close nobody could
		s.Close()
	}()
	var late <-chan time.Time
	if !until.IsZero() {
		late = time.After(max(time.Until(until.Add(undoPatience)), undoPatience-answerPatience)) // it may have been paused
	}
	select {
	case <-closed:
	case <-late:
		e.say("warning: a request was not answered: it may hold the lock %q for up to %v", e.name, e.ttl)
	}
}

// lock is the one that the command needs.
func (e *execution) lock(s strategy.Strategy) strategy.Lock {
	if e.read {
		return s.(strategy.ReadWriter).NewRLock(e.name)
	}
	return s.NewLock(e.name)
}

const markSuffix = "/at-least"

// mark takes the lock NAME/at-least, which nobody renews or releases: it lapses by itself. Until then no other exec
// takes it, also if this one has died. clients/gocron calls it by the same name.
func (e *execution) mark(ctx context.Context, s strategy.Strategy) (strategy.Lease, error) {
	marks, err := s.With(func(o *strategy.Options) {
		o.TTL, o.FenceTTL, o.MaxHold = e.atLeast, 2*e.atLeast, 0
		o.OpTimeout = 0 // the hold's may be longer than this TTL
	})
	if err != nil {
		return nil, err
	}
	return marks.NewLock(e.name + markSuffix).TryAcquire(ctx)
}

// giveUp is release if the command was not started. The mark goes, too: another machine may be able to start it.
func (e *execution) giveUp(lease strategy.Lease, lost error) error {
	if e.marked != nil {
		if err := e.marked.Release(context.Background()); err != nil {
			e.say("warning: %s%s may stay until its time is over: %v", e.name, markSuffix, e.explained(e.name, err))
		}
	}
	return e.release(lease, 0, lost)
}

// observe passes on what the strategy reports. It must not block: a reader that has not read the last
// sixteen events does not need this one.
func (e *execution) observe(n strategy.Event) {
	switch n.Kind {
	case strategy.EventRenewed, strategy.EventRenewalFailed:
		select {
		case e.news <- n:
		default:
		}
	case strategy.EventHeld:
		select {
		case e.who <- n.Err:
		default:
		}
	case strategy.EventUndoFailed:
		e.say("warning: token %q may hold the lock %q until its TTL ends: %v", strategy.ShortToken(n.Token), n.Name, e.explained(n.Name, n.Err))
	}
}

// find looks for the program as the shell does.
func find(name string) (string, error) {
	path, err := osexec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, osexec.ErrDot): // the user has . in PATH, and wants that
		return path, nil
	case errors.Is(err, osexec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &cli.Exit{Status: exitNotFound, Err: fmt.Errorf("%s: command not found; the lock was not asked for", name)}
	}
	return "", &cli.Exit{Status: exitNotExecutable, Err: fmt.Errorf("%w; the lock was not asked for", err)}
}

// acquire waits for the lock, and then takes the mark of --at-least.
func (e *execution) acquire(ctx context.Context, s strategy.Strategy) (strategy.Lease, error) {
	lease, err := e.await(ctx, e.lock(s))
	if err != nil {
		return nil, e.notAcquired(ctx, err)
	}
	if e.atLeast > 0 {
		if e.marked, err = e.mark(ctx, s); err != nil {
			lease.Release(context.Background()) //nolint:errcheck // the strategy repeats it until Close
			return nil, e.notAcquired(ctx, err)
		}
	}
	return lease, nil
}

// await asks once, so that a wrong address or password shows at once, and only then waits.
func (e *execution) await(ctx context.Context, l strategy.Lock) (strategy.Lease, error) {
	lease, err := l.TryAcquire(ctx)
	held := errors.Is(err, strategy.ErrHeld) || errors.Is(err, strategy.ErrLost)
	over := e.wait > 0 && !time.Now().Before(e.until)
	if e.try || err == nil || over || !held && !e.outlasts(err) {
		return lease, err
	}
	if held {
		defer e.tellWho(err)()
	} else {
		e.note("waiting for the server for up to %v: %v", e.wait, e.explained(e.name, err))
	}
	if e.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, e.until)
		defer cancel()
	}
	lease, late := l.Acquire(ctx)
	var server *strategy.ServerError
	if errors.Is(late, context.DeadlineExceeded) && !errors.Is(late, strategy.ErrHeld) && !errors.As(late, &server) {
		late = fmt.Errorf("%w; gave up: %w", err, late) // nothing more was asked
	}
	return lease, late
}

// tellWho says, until done is called, for whom exec waits: to a terminal, or with --verbose.
func (e *execution) tellWho(err error) (done func()) {
	if !e.verbose && !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	began, stop, ended := time.Now(), make(chan struct{}), make(chan struct{})
	e.note("waiting: %v", whoHolds(err))
	go func() {
		defer close(ended)
		pause := time.NewTicker(10 * time.Second)
		defer pause.Stop()
		for {
			select {
			case err = <-e.who:
			case <-pause.C:
				e.note("waiting for %v: %v", time.Since(began).Round(time.Second), whoHolds(err))
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-ended // nothing may be said once exec ends
	}
}

// note says what --quiet leaves out.
func (e *execution) note(format string, args ...any) {
	if !e.quiet {
		e.say(format, args...)
	}
}

// passes are the errors of a server that obeys again soon: it starts, fails over, is full or busy.
var passes = regexp.MustCompile(`^(LOADING|READONLY|MASTERDOWN|CLUSTERDOWN|TRYAGAIN|BUSY|OOM|ERR max number of clients) `)

// outlasts reports whether a wait covers what made the first attempt fail.
func (e *execution) outlasts(err error) bool {
	var said redis.Error
	var certificate *tls.CertificateVerificationError
	var guard *redlock.GuardError
	var alert *net.OpError // of the server's TLS: it refuses the certificate that we have, or have not
	storePasses, refused := storePasses(err)
	switch {
	case e.wait == 0 || e.failFast, errors.As(err, &certificate), errors.As(err, &alert) && alert.Op == "remote error":
		return false
	case refused:
		return storePasses
	case errors.As(err, &said): // one of several servers may refuse for good
		return passes.MatchString(rediskit.Reason(string(said)))
	case errors.As(err, &guard):
		return true
	}
	return errors.Is(err, strategy.ErrUnsent) || errors.Is(err, strategy.ErrUnknown)
}

// notAcquired gives the reason its exit status.
func (e *execution) notAcquired(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil: // a signal
		return e.explained(e.name, err)
	case errors.Is(err, strategy.ErrHeld):
		return &cli.Exit{Status: e.conflict, Err: whoHolds(err)}
	}
	return &cli.Exit{Status: exitUnavailable, Err: e.explained(e.name, err)}
}

// whoHolds says what the error says, for people.
func whoHolds(err error) error {
	var held *strategy.HeldError
	if !errors.As(err, &held) {
		return err
	}
	words := fmt.Sprintf("lock %q is held", held.Name)
	if held.Holder != "" {
		words += " by " + holderOf(held.Holder)
	}
	if held.TTL > 0 {
		words += fmt.Sprintf(", for %v unless renewed", held.TTL.Round(time.Millisecond))
	}
	if held.Permits > 0 {
		words += fmt.Sprintf("; %d of %d permits are taken", held.Taken, held.Permits)
	}
	return errors.New(words)
}

// environment is the command's.
func (e *execution) environment(lease strategy.Lease) []string {
	ours := []string{"LOCKS_NAME=", "LOCKS_TOKEN=", "LOCKS_FENCE=", "LOCKS_DEADLINE="} // also those of an exec around this one
	var private []string
	if e.noRedisEnv {
		private = []string{redisVar, userVar, passwordVar, caVar, certVar, keyVar, nameVar, storeVar}
		if e.strategy == onPostgres {
			private = append(private, pgPasswordVar)
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name+"=") || slices.Contains(private, name)
	})
	env = append(env, ours[0]+e.name, ours[1]+lease.Token())
	if fence, ok := lease.Fence(); ok {
		env = append(env, fmt.Sprint(ours[2], fence))
	}
	return append(env, ours[3]+lease.Deadline().UTC().Format("2006-01-02T15:04:05.000Z"))
}

// say writes a line for people that their command does not write.
func (e *execution) say(format string, args ...any) { e.said.say(format, args...) }

// A teller writes lines for people. The caller does not wait until they are read: a paused
// terminal, or a pipe that nobody reads, must not keep exec from ending a command whose lock is
// lost.
type teller struct {
	lines chan string
	done  chan struct{}

	mu    sync.Mutex
	ended bool
}

const (
	mostLines = 64                     // that wait; what is more is dropped
	tellsFor  = 500 * time.Millisecond // longest at the end, for what has not been read
)

func newTeller(w io.Writer) *teller {
	t := &teller{lines: make(chan string, mostLines), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		for line := range t.lines {
			io.WriteString(w, line)
		}
	}()
	return t
}

func (t *teller) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	select {
	case t.lines <- "locks: " + cli.Printable(fmt.Sprintf(format, args...)) + "\n":
	default:
	}
}

// end waits a little until all is written. The teller drops later lines.
func (t *teller) end() {
	t.mu.Lock()
	t.ended = true
	close(t.lines)
	t.mu.Unlock()
	select {
	case <-t.done:
	case <-time.After(tellsFor):
	}
}

// release ends the hold, after the command ended with status, or because it was lost, which
// exec has reported. Its error is how exec ends.
func (e *execution) release(lease strategy.Lease, status int, lost error) error {
	err := lease.Release(context.Background())
	var found *strategy.LostError
	switch {
	case lost != nil:
		return &cli.Exit{Status: exitLost}
	case errors.As(err, &found) && !found.Lapsed && status == 0: // a deadline that came now came after the command's end
		return &cli.Exit{Status: exitLost, Err: fmt.Errorf("the command has succeeded, but %w", e.explained(e.name, err))}
	case err != nil:
		e.say("warning: the release of the lock was not confirmed: %v", e.explained(e.name, err))
	}
	return &cli.Exit{Status: status}
}

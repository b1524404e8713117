package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/ifeq"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// connection is what the flags and the environment say about which locks, and on which
// servers. The password is kept out of arguments, and so out of the list of processes;
// nothing here prints it.
type connection struct {
	redis        []string
	store        string
	user         string
	passwordFile string
	database     int
	tls          bool
	ca           string
	cert, key    string
	serverName   string
	strategy     string
	maxTTL       time.Duration // redlock's; 0: not given
	permits      int           // semaphore's; 0: not given
	read, write  bool          // rwlock's: the flags of exec
	strict       bool          // see examine
	unseen       *string       // see noQueue; nil: not asked

	algorithm algorithm
	elsewhere bool            // the locks are on a store that is no Redis: that is the one server
	postgres  *pgxpool.Config // if that is PostgreSQL
	servers   []address
	secure    *tls.Config // for those servers that use TLS
}

// An address is one server, and how to log in.
type address struct {
	network, at    string
	user, password string
	database       int
	tls            bool
}

const (
	redisVar    = "REDIS_URL"
	userVar     = "REDIS_USER"
	passwordVar = "REDIS_PASSWORD"
	caVar       = "REDIS_TLS_CA"
	certVar     = "REDIS_TLS_CERT"
	keyVar      = "REDIS_TLS_KEY"
	nameVar     = "REDIS_TLS_SERVER_NAME"

	addressForms = "host:port, redis://[user@]host[:port][/database], rediss:// for TLS, unix:///path or a path with a slash"

	// connectTimeout bounds a dial with all that belongs to it, so that one that hangs
	// does not outlast the operation that needs it by much.
	connectTimeout = 3 * time.Second

	usualTTL = 30 * time.Second
)

// An algorithm is a strategy with its own options, by the name that it has in
// "lab compare", too.
type algorithm struct {
	name    string
	servers int // that it takes at least; one takes exactly one
	open    func(c *connection, nodes []driver.Node, o strategy.Options) (strategy.Strategy, error)
}

func algorithms() []algorithm {
	return []algorithm{
		onOne("setnxgetset", func(n driver.Node) driver.Protocol { return setnxgetset.On(n) }),
		onOne("setnxgetset-watch", func(n driver.Node) driver.Protocol { return setnxgetset.On(n, setnxgetset.WithWatchTakeOver()) }),
		onOne("setnxpx", func(n driver.Node) driver.Protocol { return setnxpx.On(n) }),
		onOne("ifeq", ifeq.On),
		onOne("luascript", func(n driver.Node) driver.Protocol { return luascript.On(n) }),
		onOne("fairqueue", func(n driver.Node) driver.Protocol { return fairqueue.On(n) }),
		onOne("reentrant", reentrant.On),
		{withPermits, 1, func(c *connection, nodes []driver.Node, o strategy.Options) (strategy.Strategy, error) {
			return semaphore.New(nodes[0], max(c.permits, 1), o)
		}},
		{withReaders, 1, func(_ *connection, nodes []driver.Node, o strategy.Options) (strategy.Strategy, error) {
			return rwlock.New(nodes[0], o)
		}},
		onSeveral("redlock"),
		onSeveral("redlock-fenced", redlock.WithFences()),
	}
}

// The strategies whose lock several may hold at a time.
const (
	withPermits = "semaphore"
	withReaders = "rwlock"
)

func onOne(name string, on func(driver.Node) driver.Protocol) algorithm {
	return algorithm{name, 1, func(_ *connection, nodes []driver.Node, o strategy.Options) (strategy.Strategy, error) {
		return engine.New(on(nodes[0]), o)
	}}
}

func onSeveral(name string, options ...redlock.Option) algorithm {
	return algorithm{name, 3, func(c *connection, nodes []driver.Node, o strategy.Options) (strategy.Strategy, error) {
		options := slices.Clone(options)
		if c.maxTTL > 0 {
			options = append(options, redlock.WithMaxTTL(c.maxTTL))
		}
		// A process that has just begun dials first: by default that would have 50 ms. An
		// attempt has up to three rounds.
		return redlock.New(nodes, o, append(options, redlock.WithNodeTimeout(max(o.OpTimeout/4, time.Millisecond)))...)
	}}
}

func algorithmNames() (names []string) {
	for _, a := range algorithms() {
		names = append(names, a.name)
	}
	return names
}

func (c *connection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&c.redis, "redis", nil, "the server's `address`; again for each of redlock's servers (default $"+redisVar+")")
	f.StringVar(&c.user, "user", "", "the ACL user's `name` (default $"+userVar+")")
	f.StringVar(&c.passwordFile, "password-file", "", "read the password from the first line of this `file`; - is the standard input (default $"+passwordVar+")")
	f.Var(number{&c.database, 0, math.MaxInt}, "db", "the database's `number` (default the address's, or 0)")
	f.BoolVar(&c.tls, "tls", false, "use TLS, as with rediss://")
	f.StringVar(&c.ca, "tls-ca", "", "trust the certificates in this `file` (default $"+caVar+", or the system's)")
	f.StringVar(&c.cert, "tls-cert", "", "the client's certificate, a PEM `file` (default $"+certVar+")")
	f.StringVar(&c.key, "tls-key", "", "the client's key, a PEM `file` (default $"+keyVar+")")
	f.StringVar(&c.serverName, "tls-server-name", "", "the `name` that the server's certificate must have (default $"+nameVar+", or the address's)")
}

// strategyFlag is for those commands that leave a choice.
func (c *connection) strategyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.strategy, "strategy", "fairqueue", "the lock's algorithm, by its `name`: "+strings.Join(algorithmNames(), ", "))
	cmd.Flags().Var(number{&c.permits, 1, semaphore.MaxPermits}, "permits", "let this `number` hold the lock at a time; the strategy is then "+withPermits)
	c.storeFlag(cmd)
	cmd.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions(algorithmNames(), cobra.ShellCompDirectiveNoFileComp))
}

// check understands the flags and the environment. It reads files, and sends nothing.
func (c *connection) check(cmd *cobra.Command) error {
	if source := c.storeGiven(cmd); source != "" {
		if err := c.chooseStore(cmd, source); err != nil {
			return err
		}
	} else {
		if err := c.choose(cmd); err != nil {
			return err
		}
		if err := c.locate(); err != nil {
			return err
		}
	}
	if err := c.protect(cmd); err != nil {
		return err
	}
	if err := c.authenticate(cmd); err != nil || c.strategy != onPostgres {
		return err
	}
	return c.readPostgres()
}

// redisEnv is what a variable says that is for Redis alone.
func (c *connection) redisEnv(name string) string {
	if c.elsewhere {
		return ""
	}
	return os.Getenv(name)
}

func (c *connection) choose(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("strategy") {
		switch {
		case cmd.Flags().Changed("permits"):
			c.strategy = withPermits
		case c.read || c.write:
			c.strategy = withReaders
		}
	}
	all := algorithms()
	i := slices.IndexFunc(all, func(a algorithm) bool { return a.name == c.strategy })
	if i < 0 {
		return fmt.Errorf("there is no strategy %q: there are %s", c.strategy, strings.Join(algorithmNames(), ", "))
	}
	c.algorithm = all[i]
	switch {
	case c.read && c.write:
		return errors.New("--read and --write exclude each other: who writes may read")
	case (c.read || c.write) && c.strategy != withReaders:
		return fmt.Errorf("%s with %s: only %s has readers and writers", cli.Given(cmd.Flags().Changed, "read", "write")[0], c.strategy, withReaders)
	case !cmd.Flags().Changed("permits"):
		return nil
	case c.strategy != withPermits:
		return fmt.Errorf("--permits with %s: only %s has them", c.strategy, withPermits)
	}
	return nil
}

// maxTTLFlag is for commands that matter to redlock's restart guard.
func (c *connection) maxTTLFlag(cmd *cobra.Command, otherwise string) {
	durationVar(cmd.Flags(), &c.maxTTL, "max-ttl", "", 0, "redlock: the longest TTL of all programs on these servers, their MaxTTL (default "+otherwise+")")
}

func (c *connection) checkMaxTTL(cmd *cobra.Command, ttl time.Duration) error {
	switch {
	case !cmd.Flags().Changed("max-ttl"):
		return nil
	case c.algorithm.servers == 1:
		return fmt.Errorf("--max-ttl with %s: only redlock has it", c.algorithm.name)
	case c.maxTTL < ttl || c.maxTTL > contract.MaxTTL || c.maxTTL%time.Millisecond != 0:
		return fmt.Errorf("--max-ttl is %v: allowed are whole milliseconds from %v to %v", c.maxTTL, ttl, contract.MaxTTL)
	}
	return nil
}

// needsPermits is for commands that serve those who wait: nobody else knows how many permits there are.
func (c *connection) needsPermits() error {
	if c.strategy == withPermits && c.permits == 0 {
		return errors.New("--strategy " + withPermits + " without --permits: how many may hold the lock at a time?")
	}
	return nil
}

// locate finds the servers.
func (c *connection) locate() error {
	given, source := c.redis, "--redis"
	if len(given) == 0 {
		source = redisVar
		given = strings.FieldsFunc(os.Getenv(redisVar), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' })
	}
	if len(given) == 0 {
		return errors.New("which Redis? Give --redis or set " + redisVar + ": " + addressForms)
	}
	for _, s := range given {
		a, err := parseAddress(s)
		if err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
		if a.password != "" && source == "--redis" {
			return cli.PasswordInArgument(source, "--password-file, "+passwordVar+" or "+redisVar)
		}
		c.servers = append(c.servers, a)
	}
	switch n := len(c.servers); {
	case c.algorithm.servers == 1 && n > 1:
		return fmt.Errorf("%s takes one server, %s names %d: only redlock takes more", c.strategy, source, n)
	case n < c.algorithm.servers:
		return fmt.Errorf("%s takes %d servers or more, %s names %d: give --redis once for each", c.strategy, c.algorithm.servers, source, n)
	}
	return nil
}

// parseAddress does not repeat what it was given: it may have a password.
func parseAddress(s string) (address, error) {
	wrong := func(what string) (address, error) {
		return address{}, fmt.Errorf("%s; allowed are %s", what, addressForms)
	}
	if !strings.Contains(s, "://") {
		if strings.Contains(s, "/") && !strings.Contains(s, "@") {
			return address{network: "unix", at: s}, nil
		}
		s = "redis://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return wrong("an address cannot be read")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return wrong("an address with a ? or # (in a password they are written %3F and %23)")
	}
	a := address{network: "tcp", user: u.User.Username()}
	a.password, _ = u.User.Password()
	switch u.Scheme {
	case "unix":
		if u.Host != "" || u.Path == "" {
			return wrong("a unix address without a path from the root")
		}
		a.network, a.at = "unix", u.Path
		return a, nil
	case "rediss":
		a.tls = true
	case "redis":
	default:
		return wrong("an address that begins with " + plain(u.Scheme) + "://")
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.Atoi(port); u.Hostname() == "" || err != nil || n < 1 || n > 65535 {
		return wrong("an address without a host, or with a port that is none")
	}
	a.at = net.JoinHostPort(u.Hostname(), port)
	if db := strings.Trim(u.Path, "/"); db != "" {
		if a.database, err = strconv.Atoi(db); err != nil || a.database < 0 {
			return wrong("an address whose path is no database's number")
		}
	}
	return a, nil
}

// protect reads what TLS needs.
func (c *connection) protect(cmd *cobra.Command) error {
	secure := false
	for i := range c.servers {
		a := &c.servers[i]
		if c.tls && a.network == "unix" {
			return errors.New("--tls with a Unix socket: TLS is for addresses of the form host:port")
		}
		a.tls = a.tls || c.tls
		secure = secure || a.tls
		if cmd.Flags().Changed("db") {
			a.database = c.database
		}
	}
	if set := cli.Given(cmd.Flags().Changed, "tls-ca", "tls-cert", "tls-key", "tls-server-name"); !secure {
		if len(set) > 0 {
			return fmt.Errorf("%s without TLS: give --tls, or an address with rediss:// or etcds://", set[0])
		}
		return nil
	}
	ca, cert, key := cmp.Or(c.ca, c.redisEnv(caVar)), cmp.Or(c.cert, c.redisEnv(certVar)), cmp.Or(c.key, c.redisEnv(keyVar))
	c.secure = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(c.serverName, c.redisEnv(nameVar))}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w", err)
		}
		c.secure.RootCAs = x509.NewCertPool()
		if !c.secure.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-ca: there is no certificate in %s: want PEM", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("a client's certificate needs both --tls-cert and --tls-key: one is missing")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: want a certificate and its key, in PEM: %w", err)
		}
		c.secure.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// authenticate finds out who we are: what flags say counts more than what an address says,
// and that more than the environment.
func (c *connection) authenticate(cmd *cobra.Command) error {
	password := ""
	if c.passwordFile != "" {
		var err error
		if password, err = readPassword(cmd.Context(), c.passwordFile, cmd.InOrStdin(), cmd.ErrOrStderr()); err != nil {
			return fmt.Errorf("--password-file: %w", err)
		}
	}
	for i := range c.servers {
		a := &c.servers[i]
		a.user = cmp.Or(c.user, a.user, c.redisEnv(userVar))
		a.password = cmp.Or(password, a.password, c.redisEnv(passwordVar))
		if a.user != "" && a.password == "" && a.network != onPostgres { // which may ask for none, or has it in ~/.pgpass
			variable := passwordVar
			if c.elsewhere {
				variable = storeVar
			}
			return fmt.Errorf("there is a user and no password: give --password-file or set %s", variable)
		}
	}
	return nil
}

const mostPassword = 64 << 10

// ask reads the password from a terminal, until a signal ends ctx. Then the terminal shows again what is typed.
func ask(ctx context.Context, terminal int, stderr io.Writer) (string, error) {
	was, err := term.GetState(terminal)
	if err != nil {
		return "", err
	}
	fmt.Fprint(stderr, "Password: ")
	defer fmt.Fprintln(stderr)
	typed := make(chan func() (string, error), 1)
	go func() {
		line, err := term.ReadPassword(terminal)
		typed <- func() (string, error) { return notEmpty(line, err) }
	}()
	select {
	case password := <-typed:
		return password()
	case <-ctx.Done():
		term.Restore(terminal, was) //nolint:errcheck // the process ends
		return "", context.Cause(ctx)
	}
}

// readPassword reads the first line, and not a byte more: what follows on the standard
// input is the command's.
func readPassword(ctx context.Context, file string, stdin io.Reader, stderr io.Writer) (string, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	} else if f, ok := stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return ask(ctx, int(f.Fd()), stderr)
	}
	var line []byte
	for one := make([]byte, 1); len(line) < mostPassword; {
		n, err := in.Read(one)
		if n == 1 && one[0] == '\n' || err == io.EOF {
			return notEmpty(line, nil)
		}
		if err != nil {
			return "", err
		}
		line = append(line, one[:n]...)
	}
	return "", fmt.Errorf("the first line has more than %d bytes", mostPassword)
}

func notEmpty(line []byte, err error) (string, error) {
	if line = bytes.TrimSuffix(line, []byte("\r")); err == nil && len(line) == 0 {
		err = errors.New("the first line is empty: want the password there")
	}
	return string(line), err
}

// open makes the strategy. It does no I/O.
func (c *connection) open(o strategy.Options) (strategy.Strategy, error) {
	return c.algorithm.open(c, c.nodes(), o)
}

// nodes are the servers of Redis. They do no I/O yet.
func (c *connection) nodes() (nodes []driver.Node) {
	if c.elsewhere {
		return nil
	}
	for _, a := range c.servers {
		nodes = append(nodes, redigonode.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) { return c.dial(ctx, a) }}))
	}
	return nodes
}

func closeAll(nodes []driver.Node) {
	for _, n := range nodes {
		n.Close()
	}
}

func (c *connection) dial(ctx context.Context, a address) (redis.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no connection within %v", connectTimeout))
	defer cancel()
	options := []redis.DialOption{
		redis.DialConnectTimeout(connectTimeout),
		redis.DialReadTimeout(connectTimeout),
		redis.DialWriteTimeout(connectTimeout),
		redis.DialDatabase(a.database),
		redis.DialUsername(a.user),
		redis.DialPassword(a.password),
	}
	if a.tls {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(c.secure), redis.DialTLSHandshakeTimeout(connectTimeout))
	}
	conn, err := redis.DialContext(ctx, a.network, a.at, options...)
	if said, ok := err.(redis.Error); ok { // of AUTH or SELECT: its words name no user
		return nil, fmt.Errorf("user %q: %w", cmp.Or(a.user, "default"), redis.Error(c.withoutPasswords(string(said))))
	}
	return conn, err
}

// withoutPasswords puts *** where a password stands: a server may quote what it was sent.
func (c *connection) withoutPasswords(words string) string {
	for _, a := range c.servers {
		if a.password != "" {
			words = strings.ReplaceAll(words, a.password, "***")
		}
	}
	return words
}

// explained adds to a refusal what the server's words leave out.
func (c *connection) explained(name string, err error) error {
	if err == nil {
		return nil
	}
	words := c.addressed(err.Error())
	switch {
	case rediskit.WrongType(words):
		return fmt.Errorf("%s: the lock's key is %q, and what is there is not of a %s lock: give the --strategy of the lock's holder", words, strategy.DefaultKey(name), c.strategy)
	case strings.Contains(words, noLock):
		return fmt.Errorf("%s: give the --strategy of the lock's holder", words)
	case strings.Contains(words, "postgres.Migration"):
		return fmt.Errorf("%s: locks migrate makes the schema, and its help has the rights", words)
	case rediskit.Forbidden(words):
		return fmt.Errorf("%s: ACL LOG on the server names the user, and the key or command that it lacks", words)
	case words != err.Error():
		return errors.New(words)
	}
	return err
}

// simpler are words for people in the place of some for programmers.
var simpler = []struct {
	words *regexp.Regexp
	say   string
}{
	{regexp.MustCompile(`dial (?:tcp \S+|unix \S+|tcp): (?:connect: )?`), ""}, // the address stands before
	{regexp.MustCompile(`:\\n\\t`), ": "},                                     // pgx has a line for each attempt
	{regexp.MustCompile(`\\n\\t`), "; "},
	{regexp.MustCompile(`redigo: unexpected response line \(.*?\)`), "what answers there is no Redis"},
	{regexp.MustCompile(`TLS handshake timeout`), "TLS handshake timeout: does this port have TLS?"},
	{regexp.MustCompile(`(after \d+\.\d)\d*s\b`), "${1}s"},
}

// addressed puts addresses in the place of what a node is called until its server has said where it is:
// one that lets nobody in says nothing. It leaves out places in scripts, and passwords.
func (c *connection) addressed(words string) string {
	words = c.withoutPasswords(rediskit.Reason(words))
	for _, s := range simpler {
		words = s.words.ReplaceAllString(words, s.say)
	}
	for i, a := range c.servers {
		words = strings.ReplaceAll(words, fmt.Sprintf("node %d: %s: ", i+1, driver.Unnamed), a.at+": ")
	}
	if rest, unnamed := strings.CutPrefix(words, driver.Unnamed+": "); unnamed && len(c.servers) == 1 {
		return c.servers[0].at + ": " + rest
	}
	return words
}

// options are what the commands have in common. An operation has time for a dial over a
// slow line, and a tool that gets the signal to end ends within this time all the same.
func options(ttl time.Duration) strategy.Options {
	return strategy.Options{TTL: ttl, OpTimeout: min(ttl/6, connectTimeout)}
}

// checkName refuses what no lock can be called.
func checkName(name string) error {
	if name == "" || len(name) > contract.MaxNameLen {
		return fmt.Errorf("the lock's name has %d bytes: allowed are 1 to %d", len(name), contract.MaxNameLen)
	}
	return nil
}

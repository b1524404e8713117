package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	stdpath "path"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
)

// The stores beyond Redis: --store names one. Each has one strategy, which is called as the store is.
const (
	onPostgres = "postgres"
	onEtcd     = "etcd"

	storeVar      = "LOCKS_STORE"
	pgPasswordVar = "PGPASSWORD" // pgx reads it

	storeForms = "postgres://[user@]host[:port]/database, etcd://[user@]host:port[,host:port …], and etcds:// for TLS"
)

func (c *connection) storeFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.store, "store", "", "the `address` of PostgreSQL or etcd, if the locks are not on Redis (default $"+storeVar+")")
	cmd.RegisterFlagCompletionFunc("store", cobra.FixedCompletions([]string{"postgres://", "etcd://", "etcds://"},
		cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// storeGiven says who names a store: --store or LOCKS_STORE; empty: the locks are on Redis. A flag counts more than the
// environment, and LOCKS_STORE more than REDIS_URL, which is often there for other reasons.
func (c *connection) storeGiven(cmd *cobra.Command) (source string) {
	switch {
	case cmd.Flags().Changed("store"):
		return "--store"
	case cmd.Flags().Lookup("store") == nil || cmd.Flags().Changed("redis"):
		return ""
	}
	if c.store = os.Getenv(storeVar); c.store == "" {
		return ""
	}
	return storeVar
}

// chooseStore is choose and locate for a store.
func (c *connection) chooseStore(cmd *cobra.Command, source string) error {
	given := func(flags ...string) string { return strings.Join(cli.Given(cmd.Flags().Changed, flags...), ", ") }
	a, err := parseStore(c.store)
	switch {
	case given("redis") != "":
		return errors.New("--store and --redis exclude each other: a lock is in one place")
	case err != nil:
		return fmt.Errorf("%s: %w", source, err)
	case a.password != "" && source == "--store":
		return cli.PasswordInArgument(source, "--password-file, "+storeVar+", or for PostgreSQL "+pgPasswordVar+" or ~/.pgpass")
	}
	if flags := given("strategy", "permits", "read", "write", "max-ttl", "db"); flags != "" {
		return fmt.Errorf("%s with %s: that is for Redis; PostgreSQL and etcd have one kind of lock each, as fairqueue's", flags, a.network)
	}
	if flags := given("tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name"); flags != "" && a.network == onPostgres {
		return fmt.Errorf("%s with postgres: its address says that, as with psql: postgres://host/database?sslmode=verify-full&sslrootcert=FILE", flags)
	}
	c.elsewhere, c.strategy, c.servers = true, a.network, []address{a}
	c.algorithm = algorithm{name: a.network, servers: 1, open: (*connection).openEtcd}
	if a.network == onPostgres {
		c.algorithm.open = (*connection).openPostgres
	}
	return nil
}

// parseStore does not repeat what it was given: it may have a password.
func parseStore(s string) (address, error) {
	wrong := func(what string) (address, error) {
		return address{}, fmt.Errorf("%s; allowed are %s", what, storeForms)
	}
	scheme, rest, _ := strings.Cut(s, "://")
	a, one := address{network: onPostgres}, s
	switch scheme {
	case "postgres", "postgresql":
	case "etcd", "etcds":
		at := strings.LastIndex(rest, "@") + 1
		a.network, a.at, a.tls = onEtcd, strings.TrimSuffix(rest[at:], "/"), scheme == "etcds"
		one = "etcd://" + rest[:at] + "h"
		for host := range strings.SplitSeq(a.at, ",") {
			if u, err := url.Parse("etcd://" + host); err != nil || host == "" || u.Host != host {
				return wrong("an address of etcd whose hosts cannot be read")
			}
		}
	default:
		return wrong("an address that begins otherwise")
	}
	u, err := url.Parse(one)
	switch {
	case err != nil:
		return wrong("an address cannot be read")
	case u.Fragment != "":
		return wrong("an address with a # (in a password it is written %23)")
	case u.Query().Has("password"), u.Query().Has("sslpassword"):
		return wrong("an address with a password behind the ?")
	}
	a.user = u.User.Username()
	a.password, _ = u.User.Password()
	if u.User = nil; a.network == onPostgres {
		a.at = u.String()
	}
	return a, nil
}

// readPostgres finds what is wrong with the address of PostgreSQL, once the password is known. It takes the rest from where psql
// has it: PGUSER, PGPASSWORD, ~/.pgpass …
func (c *connection) readPostgres() error {
	a := &c.servers[0]
	u, err := url.Parse(a.at)
	if err != nil {
		return err
	}
	switch {
	case a.password != "":
		u.User = url.UserPassword(a.user, a.password)
	case a.user != "":
		u.User = url.User(a.user)
	}
	if c.postgres, err = pgxpool.ParseConfig(u.String()); err != nil { // it repeats the address
		return fmt.Errorf("the address of PostgreSQL cannot be read: %w", cmp.Or(errors.Unwrap(err), errors.New("its parameters are wrong")))
	}
	c.postgres.ConnConfig.ConnectTimeout = cmp.Or(c.postgres.ConnConfig.ConnectTimeout, connectTimeout)
	a.password = c.postgres.ConnConfig.Password // for withoutPasswords
	return nil
}

// opened is a strategy with a client of its own.
type opened struct {
	strategy.Strategy
	keys  func(context.Context) ([]string, error) // of all locks that somebody holds
	leave func()
}

func (o opened) Close() error {
	defer o.leave()
	return o.Strategy.Close()
}

func (c *connection) openPostgres(_ []driver.Node, o strategy.Options) (strategy.Strategy, error) {
	pool, err := pgxpool.NewWithConfig(context.Background(), c.postgres)
	if err != nil {
		return nil, err
	}
	locks, err := postgres.New(pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return opened{locks, func(ctx context.Context) ([]string, error) { return postgres.List(ctx, pool) }, pool.Close}, nil
}

// openEtcd logs in, if there is a user.
func (c *connection) openEtcd(_ []driver.Node, o strategy.Options) (strategy.Strategy, error) {
	a := c.servers[0]
	config := clientv3.Config{
		Endpoints: strings.Split(a.at, ","), Username: a.user, Password: a.password, Logger: zap.NewNop(),
		DialTimeout: connectTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
	}
	if a.tls {
		config.TLS = c.secure
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, &cli.Exit{Status: exitUnavailable, Err: fmt.Errorf("etcd %s: user %q: %s", a.at, a.user, c.withoutPasswords(err.Error()))}
	}
	locks, err := etcd.New(client, o)
	if err != nil {
		client.Close()
		return nil, err
	}
	keys := func(ctx context.Context) ([]string, error) { return etcd.List(ctx, client, "lock:{") }
	return opened{locks, keys, func() { client.Close() }}, nil
}

// matches reports whether a key matches a pattern as it would on Redis, where * stands for a slash, too.
func matches(pattern, key string) (bool, error) {
	noSlash := strings.NewReplacer("/", "\x00")
	return stdpath.Match(noSlash.Replace(pattern), noSlash.Replace(key))
}

// postgresPasses are the refusals of a server that obeys again soon: it starts, fails over, is full or busy.
var postgresPasses = regexp.MustCompile(`^(25006|53...|55P03|57P..)$`)

// storePasses reports whether an error is a refusal of PostgreSQL or etcd, and whether that passes soon.
func storePasses(err error) (passes, refused bool) {
	var sql *pgconn.PgError
	if errors.As(err, &sql) {
		return postgresPasses.MatchString(sql.Code), true
	}
	var member rpctypes.EtcdError
	if errors.As(err, &member) {
		return member.Code() == codes.Unavailable || member.Code() == codes.ResourceExhausted, true
	}
	return false, false
}

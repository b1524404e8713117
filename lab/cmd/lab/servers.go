package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstrategies/locks/internal/cli"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// servers is what the flags say about which Redis to use.
type servers struct {
	embedded, docker bool
	redis            []string
}

const urlForm = "redis://host:port[/database]"

func (v *servers) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&v.docker, "docker", false, "demand a Docker container")
	f.BoolVar(&v.embedded, "embedded", false, "use the embedded imitation of Redis: no timings to rely on")
	f.StringArrayVar(&v.redis, "redis", nil, "use this server: `host:port`, or\n"+urlForm+";\nagain for more servers")
	cmd.MarkFlagsMutuallyExclusive("docker", "embedded", "redis")
}

// check finds what makes no sense before anything is started.
func (v *servers) check() error {
	for _, s := range v.redis {
		if !strings.Contains(s, "://") {
			s = "redis://" + s
		}
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Hostname() == "" { // the value is not repeated: it may hold a password
			return errors.New("--redis names no server: want host:port or " + urlForm)
		}
		if _, secret := u.User.Password(); secret {
			return cli.PasswordInArgument("--redis", "REDIS_ADDRS=redis://user:password@host:port")
		}
	}
	return nil
}

// open finds the servers that were asked for, or starts some, and says which, before the slow work.
func (v *servers) open(ctx context.Context, words, log io.Writer) (*redistest.Farm, error) {
	w, err := v.want(log)
	if err != nil {
		return nil, errors.New(v.asAsked(err.Error()))
	}
	farm, err := redistest.Open(ctx, w)
	if err != nil {
		err = v.gaveUp(ctx, err)
		if ctx.Err() == nil {
			err = &cli.Exit{Status: cli.Unavailable, Err: err}
		}
		return nil, err
	}
	io.WriteString(words, lookOf(words).prose("redis: ", strings.TrimPrefix(v.asAsked(farm.Choice()), "redis: ")))
	return farm, nil
}

// want says what Redis to use: what the flags say, else the environment.
func (v *servers) want(log io.Writer) (redistest.Want, error) {
	if len(v.redis) > 0 {
		return redistest.Want{Kind: redistest.Given, Addrs: v.redis, Log: log}, nil
	}
	w, err := redistest.FromEnv()
	if err != nil {
		return w, err
	}
	w.Log = log
	switch {
	case v.docker:
		w.Kind = redistest.Docker
	case v.embedded:
		w.Kind, w.Server = redistest.Embedded, "" // an imitation of no version
	}
	return w, nil
}

// asAsked says what redistest says of its variables in the words of a user who
// gave flags, and has never heard of a package of that name.
func (v *servers) asAsked(s string) string {
	s = strings.ReplaceAll(s, "redistest: ", "")
	switch {
	case len(v.redis) > 0:
		s, _, _ = strings.Cut(s, ". Ways out: ") // the one that was asked for is the only one
		return strings.ReplaceAll(s, "REDIS_ADDRS", "--redis")
	case v.docker:
		return strings.ReplaceAll(s, "REDIS_KIND=docker", "--docker")
	case v.embedded:
		return strings.ReplaceAll(s, "REDIS_KIND=embedded", "--embedded")
	}
	return s
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// gaveUp is the error of work that was not finished.
func (v *servers) gaveUp(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.New(v.asAsked(err.Error()))
}

package goredisnode

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/strategy"
)

// plain turns what go-redis makes of a reply into what the contract says: nil, int64, []byte
// and []any. A type that only RESP3 has becomes what RESP2 has in its place.
func (c *call) plain(reply any) (any, error) {
	switch r := reply.(type) {
	case nil, int64:
		return r, nil
	case string:
		return []byte(r), nil
	case float64:
		return strconv.AppendFloat(nil, r, 'g', 17, 64), nil
	case *big.Int:
		return []byte(r.String()), nil
	case bool:
		if r {
			return int64(1), nil
		}
		return int64(0), nil
	case []any:
		return c.array(r)
	case map[any]any:
		pairs := make([]any, 0, 2*len(r))
		for k, v := range r {
			pairs = append(pairs, k, v)
		}
		return c.array(pairs)
	}
	return nil, c.failed(strategy.ErrUnknown, fmt.Errorf("a reply of type %T", reply))
}

// array does the same for the elements. An error among them came next to commands that took
// effect, so "nothing has changed" would be a lie: what is true of the whole is that its
// outcome is unknown.
func (c *call) array(rs []any) (any, error) {
	for i, r := range rs {
		if said, ok := r.(redis.Error); ok {
			return nil, c.failed(strategy.ErrUnknown, fmt.Errorf("element %d of the reply: %w", i, said))
		}
		e, err := c.plain(r)
		if err != nil {
			return nil, err
		}
		rs[i] = e
	}
	return rs, nil
}

// lost says of the end of a connection what it means for a request.
func lost(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection ended before the reply: %w", err)
	}
	return err
}

// appendPlain appends arguments as go-redis can write them.
func appendPlain(to, args []any) []any {
	for _, a := range args {
		switch a.(type) {
		case string, []byte, int, int64, float64, bool, nil:
			to = append(to, a)
		default:
			to = append(to, fmt.Sprint(a))
		}
	}
	return to
}

var echoed = regexp.MustCompile(`(?s),? with args beginning with:.*`)

// discreet keeps passwords out of what is said when no connection comes about: a server
// without AUTH quotes its arguments. It does not wrap an error that it
// had to change, because the original still says it.
func discreet(err error) error {
	if s := echoed.ReplaceAllString(err.Error(), ""); s != err.Error() {
		return errors.New(s)
	}
	return err
}

package client

import (
	"fmt"
	"math/big"
	"strconv"
)

// Plain turns what a client makes of a reply into what the contract says: nil, int64, []byte and []any. A type that only
// RESP3 has becomes what RESP2 has in its place.
//
// An error among the elements of an array (EXEC) came next to commands that took effect, so "nothing has changed" would be
// a lie: with any error of Plain, the outcome of the whole is unknown.
func Plain(reply any) (any, error) {
	switch r := reply.(type) {
	case nil, int64, []byte:
		return reply, nil
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
		for i, e := range r {
			plain, err := Plain(e)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			r[i] = plain
		}
		return reply, nil
	case map[any]any:
		pairs := make([]any, 0, 2*len(r))
		for k, v := range r {
			pairs = append(pairs, k, v)
		}
		return Plain(pairs)
	case error:
		return nil, r
	}
	return nil, fmt.Errorf("a reply of type %T", reply)
}

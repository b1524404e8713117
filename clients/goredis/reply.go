package goredisnode

import (
	"errors"
	"fmt"
	"io"
)

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

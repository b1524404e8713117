package history

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// linear looks for an order of the operations that the model explains, each at one moment
// between its call and its return. It may need to try very many; if it has found neither
// an order nor that there is none within limit, that is reported, too: it is not a pass.
func linear(property, key string, m porcupine.NondeterministicModel, steps []porcupine.Operation, limit time.Duration) []Violation {
	result, info := porcupine.CheckOperationsVerbose(m.ToModel(), steps, limit)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		explained, odd := longest(steps, info)
		sentence := fmt.Sprintf("no order of the operations on %q explains them all", key)
		if odd != nil {
			sentence += fmt.Sprintf("; the longest does not explain the %s of %s", odd.Kind, odd.Client)
			explained = append(explained[max(0, len(explained)-4):], *odd)
		}
		return []Violation{{property, sentence, explained}}
	default:
		return []Violation{{property, fmt.Sprintf("undecided after %v: whether some order explains the %d steps on %q is not known", limit, len(steps), key), nil}}
	}
}

// longest is the longest order that was found, without what no client did and those that
// were refused, and the operation that ended first of those that did not fit.
func longest(steps []porcupine.Operation, info porcupine.LinearizationInfo) (ops []Op, odd *Op) {
	var best []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(best) {
				best = order
			}
		}
	}
	fits := map[int]bool{}
	for _, s := range best {
		fits[s.Metadata.(stepOf).n] = true
		if op := s.Metadata.(stepOf).op; op != nil && op.Result != Held {
			ops = append(ops, *op)
		}
	}
	for _, s := range steps {
		if op := s.Metadata.(stepOf).op; op != nil && !fits[s.Metadata.(stepOf).n] && (odd == nil || op.End < odd.End) {
			odd = op
		}
	}
	return ops, odd
}

// stepOf says where a step of a model comes from: from an operation, or, nil, from none.
type stepOf struct {
	n  int
	op *Op
}

// A script collects the steps that a model is to explain.
type script struct {
	steps   []porcupine.Operation
	clients []string
}

func (s *script) add(client string, input any, op *Op, call, end time.Duration) {
	i := slices.Index(s.clients, client)
	if i < 0 {
		i = len(s.clients)
		s.clients = append(s.clients, client)
	}
	s.steps = append(s.steps, porcupine.Operation{
		ClientId: i, Input: input, Call: int64(call), Return: int64(max(call, end)),
		Metadata: stepOf{len(s.steps), op},
	})
}

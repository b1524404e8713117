package redact_test

import (
	"fmt"

	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/redact"
)

// An observer of one's own, that prints what is lost.
func ExampleError() {
	observe := func(e strategy.Event) {
		if e.Kind == strategy.EventLost {
			fmt.Println(redact.Token(e.Token), "has lost", e.Name+":", redact.Error(e))
		}
	}
	observe(strategy.Event{
		Kind: strategy.EventLost, Name: "invoice/42", Token: "7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b:host-7",
		Err: &strategy.LostError{Name: "invoice/42", Holder: "0b7de1c4-88f2-4a0e-8f3b-5d6c7b8a9e0f:host-8"},
	})
	// Output:
	// …3f4a5b:host-7 has lost invoice/42: lock "invoice/42": lost: now held by "…8a9e0f:host-8"
}

func ExampleToken() {
	fmt.Println(redact.Token("7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b:host-7"))
	// Output: …3f4a5b:host-7
}

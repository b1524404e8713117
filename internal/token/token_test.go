// Tokens: their form, their label, their time, and whether they announce.
package token

import (
	"strings"
	"testing"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/lockstrategies/locks/driver"
)

func TestNew(t *testing.T) {
	before := time.Now().Truncate(time.Millisecond)
	text := New("web/42", false)
	label, drawn := Parse(text)
	if label != "web/42" || drawn.Before(before) || drawn.After(time.Now()) {
		t.Errorf("Parse(New(web/42)) = %q, %v, want the label, and now", label, drawn)
	}
	if other := New("web/42", false); other == text {
		t.Error("two tokens are the same")
	}
	if plain := New("", false); len(plain) != 36 {
		t.Errorf("New without a label = %q, want a UUID alone", plain)
	}
}

// TestHoldTokens: the tokens of holds that are held together have the label and the time of the claim's.
func TestHoldTokens(t *testing.T) {
	text := New("web/42", true)
	label, drawn := Parse(text)
	for _, i := range []int{0, 1, 9, driver.MaxFences - 1} {
		hold := driver.HoldToken(text, i)
		if l, d := Parse(hold); l != label || !d.Equal(drawn) {
			t.Errorf("Parse(%q) = %q, %v, want %q, %v", hold, l, d, label, drawn)
		}
		if announced, ours := Announced(hold); !announced || !ours {
			t.Errorf("Announced(%q) = %t, %t, want true, true", hold, announced, ours)
		}
	}
	for _, prefix := range []string{"1.", "0.", "-2.", "02.", "+2.", "x.", ".", "2.2.", "1000.", "2"} {
		if l, d := Parse(prefix + text); l != "" || !d.IsZero() {
			t.Errorf("Parse(%q) = %q, %v, want nothing: it is foreign", prefix+text, l, d)
		}
	}
}

// FuzzLabel: the label of any text is what follows a UUID and a colon, or nothing.
func FuzzLabel(f *testing.F) {
	for _, text := range []string{"", ":", "5d2c8a8e-8c5c-4c3c-9f43-0d3b8c1f6f11", "5d2c8a8e-8c5c-4c3c-9f43-0d3b8c1f6f11:host 7", "5d2c8a8e8c5c4c3c9f430d3b8c1f6f1100000:x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if label, _ := Parse(text); label != "" && !strings.HasSuffix(text, ":"+label) {
			t.Errorf("Parse(%q) = %q, want a label that it ends in", text, label)
		}
	})
}

// TestAnnounced: the mark is in the tokens that are to have it, and in no others.
func TestAnnounced(t *testing.T) {
	for _, want := range []bool{true, false} {
		text := New("web-1/7", want)
		if announced, ours := Announced(text); announced != want || !ours {
			t.Fatalf("Announced(%q) = %t, %t, want %t, true", text, announced, ours, want)
		}
		for group := range 1 << 12 { // whatever the random bits are
			id := uuid.UUID{6: 0x70 | byte(group>>8), 7: byte(group), 8: 0x80}
			before := id
			setMark(&id, want)
			if announced, ours := Announced(id.String()); announced != want || !ours || !want && group != 0xe11 && id != before {
				t.Errorf("Announced(%v) = %t, %t, want %t, true: from %v", id, announced, ours, want, before)
			}
		}
	}
	for _, text := range []string{
		"", "WEB-1", "d2hhdGV2ZXIgaXQgaXMhIQ==", "a8098c1af86e11dabd1a00112444be1e",
		"f47ac10b-58cc-4372-a567-0e02b2c3d479", "017f22e2-79b0-7e11-98c4-dc0c0c07398fx",
	} {
		if announced, ours := Announced(text); announced || ours {
			t.Errorf("Announced(%q) = %t, %t, want false, false: it is foreign", text, announced, ours)
		}
	}
}

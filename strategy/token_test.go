package strategy

import "testing"

// TestAnnounced: the mark is in the tokens that are to have it, and in no others.
func TestAnnounced(t *testing.T) {
	for range 50_000 { // of random bits alone, one in 4096 would bear it
		for _, want := range []bool{true, false} {
			token, err := newToken("web-1/7", want)
			if err != nil {
				t.Fatal(err)
			}
			if announced, ours := Announced(token); announced != want || !ours {
				t.Fatalf("Announced(%q) = %t, %t, want %t, true", token, announced, ours, want)
			}
		}
	}
	for _, token := range []string{
		"", "WEB-1", "d2hhdGV2ZXIgaXQgaXMhIQ==", "a8098c1af86e11dabd1a00112444be1e",
		"f47ac10b-58cc-4372-a567-0e02b2c3d479", "017f22e2-79b0-7e11-98c4-dc0c0c07398fx",
	} {
		if announced, ours := Announced(token); announced || ours {
			t.Errorf("Announced(%q) = %t, %t, want false, false: it is a stranger's", token, announced, ours)
		}
	}
}

package compare

// Tests how measured numbers read in tables.

import "testing"

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		f    func(float64) string
		x    float64
		want string
	}{
		{ThreeDigits, 0, "0"}, {ThreeDigits, 1, "1"}, {ThreeDigits, 2.0949, "2.09"}, {ThreeDigits, 24.66, "24.7"}, {ThreeDigits, 1234.4, "1234"}, {ThreeDigits, 0.0512, "0.0512"},
		{Micros, 9.876, "9.88 µs"}, {Micros, 999, "999 µs"}, {Micros, 1234, "1.23 ms"}, {Micros, 2_500_000, "2.5 s"},
		{Rate, 0, "0"}, {Rate, 582.3, "582"}, {Rate, 1000, "1,000"}, {Rate, 16_432, "16,400"}, {Rate, 1_234_567, "1,230,000"}, {Rate, 99_960, "100,000"},
	} {
		if got := c.f(c.x); got != c.want {
			t.Errorf("%v reads %q, want %q", c.x, got, c.want)
		}
	}
}

package compare

// Tests how measured numbers read in tables.

import "testing"

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		f    func(float64) string
		x    float64
		want string
	}{
		{threeDigits, 0, "0"}, {threeDigits, 1, "1"}, {threeDigits, 2.0949, "2.09"}, {threeDigits, 24.66, "24.7"}, {threeDigits, 1234.4, "1234"}, {threeDigits, 0.0512, "0.0512"},
		{Micros, 9.876, "9.88 µs"}, {Micros, 999, "999 µs"}, {Micros, 1234, "1.23 ms"}, {Micros, 2_500_000, "2.5 s"},
		{rate, 0, "0"}, {rate, 582.3, "582"}, {rate, 1000, "1,000"}, {rate, 16_432, "16,400"}, {rate, 1_234_567, "1,230,000"}, {rate, 99_960, "100,000"},
	} {
		if got := c.f(c.x); got != c.want {
			t.Errorf("%v reads %q, want %q", c.x, got, c.want)
		}
	}
}

package lessons

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// arrows is the lifelines with an arrow to each server that a command was sent to.
func (d *Drawing) arrows(r row) []cell {
	commands := r.all()
	farthest := slices.MaxFunc(commands, func(a, b *row) int { return d.at[a.To] - d.at[b.To] })
	cells := d.arrow(r.From, farthest.To, '─')
	for _, c := range commands {
		cells[d.at[c.To]-1] = cell{'▶', Plain}
	}
	return cells
}

// fanned is a command to several servers, with what they have answered: in one line, if it
// is short, or else in one for each of the different answers.
func (d *Drawing) fanned(r row) string {
	parts := []string{r.Command()}
	for _, a := range r.answers(d.actors) {
		parts = append(parts, "→ "+strings.Join(a.From, " ")+": "+a.Text)
	}
	if line := strings.Join(parts, "  "); utf8.RuneCountInString(line) <= d.width-d.text {
		return line
	}
	return strings.Join(parts, "\n")
}

// answers are the different ones to a command, in the order of the servers.
func (r row) answers(actors []Actor) (all []Answer) {
	commands := r.all()
	place := func(r *row) int {
		return slices.IndexFunc(actors, func(a Actor) bool { return a.Name == r.To })
	}
	slices.SortFunc(commands, func(a, b *row) int { return place(a) - place(b) })
	for _, c := range commands {
		if c.answer == "" {
			continue
		}
		i := slices.IndexFunc(all, func(a Answer) bool { return a.Text == c.answer })
		if i < 0 {
			i, all = len(all), append(all, Answer{Text: c.answer})
		}
		all[i].From = append(all[i].From, c.To)
	}
	return all
}

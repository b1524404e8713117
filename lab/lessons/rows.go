package lessons

// A Row is what a diagram shows side by side: an event, or a command with its answers.
type Row struct {
	Event
	Servers []string // send: to which the command went
	Answers []Answer // send: what came back before anything else happened
}

// An Answer is what some servers said, all the same.
type Answer struct {
	From []string
	Text string
}

// Rows are the rows of the trace's diagram, for those who do not draw it on a terminal.
func (t Trace) Rows() (rows []Row) {
	d := NewDrawing(0, func(_ Style, s string) string { return s })
	d.Head(t.Actors)
	d.draw = func(r row) {
		out := Row{Event: r.Event}
		if r.Kind == Send {
			out.Answers = r.answers(t.Actors)
			for _, c := range r.all() {
				out.Servers = append(out.Servers, c.To)
			}
		}
		rows = append(rows, out)
	}
	for _, e := range t.Events {
		d.Row(e)
	}
	d.Rest()
	return rows
}

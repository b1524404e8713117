package lessons

func init() {
	shown["readers"] = []string{
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a writer waits for no reader that came after it: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a writer waits for no reader that came after it: KEPT; who waits is served in the step that makes room: KEPT",
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: KEPT",
		"nobody writes while another reads or writes: KEPT; nobody writes between a writer's work and its reading: KEPT",
	}
}

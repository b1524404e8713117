package lessons

func init() {
	shown["permits"] = []string{
		"never more holders than permits: KEPT; a dead holder's lock comes free: VIOLATED",
		"never more holders than permits: VIOLATED",
		"never more holders than permits: KEPT; a dead holder's lock comes free: KEPT",
		"never more holders than permits: KEPT; who comes first is served first: KEPT; who waits is served in the step that makes room: KEPT",
	}
}

package history

import "cmp"

// noLostUpdate finds updates that were lost: who reads, thinks and writes back under a
// lock overwrites only what it has read. Each write comes from the value that its hold read or
// wrote last; no two writes that took effect may come from the same one, or one of them is
// lost. A write of unknown end has taken effect if somebody has read its value. A write
// without a read is not looked at.
func noLostUpdate(ops []Op) (found []Violation) {
	type value struct{ key, value string }
	type user struct{ key, hold string }
	type update struct{ read, write Op }
	seen := map[value]bool{}
	for _, op := range ops {
		if op.Kind == KindRead && op.Result == OK {
			seen[value{op.Key, op.Value}] = true
		}
	}
	bases := map[user]Op{}      // what it read or wrote last
	wrote := map[value]update{} // by the value it came from; those that took effect
	for _, op := range ops {
		by := user{op.Key, cmp.Or(op.Hold, op.Client)}
		base, based := bases[by]
		switch {
		case op.Kind == KindRead && op.Result == OK:
			bases[by] = op
		case op.Kind == KindWrite && based && (op.Result == OK || op.Result == Unknown):
			bases[by] = op
			from := value{op.Key, base.Value}
			if op.Result == Unknown && !seen[value{op.Key, op.Value}] {
				continue
			}
			if first, ok := wrote[from]; ok {
				found = append(found, violation("NoLostUpdate", []Op{first.read, base, first.write, op},
					"the updates of %s and %s to %q both come from %q: one of them is lost", first.write.Client, op.Client, op.Key, base.Value))
			} else {
				wrote[from] = update{base, op}
			}
		}
	}
	return found
}

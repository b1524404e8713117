package history

import (
	"cmp"
	"slices"
)

// fenceOrder finds fences that do not order the holds. Every hold has a fence; no two
// share one; a client that asked after another had got its fence gets a greater one; a hold
// keeps its fence for life. Where the lock is re-entrant, holds of one owner may share
// a fence, and do so if the second was got while the first was held. For real time this
// check is complete: if no two grants that did not overlap are in the wrong order, an
// order of all exists that none contradicts. Of a read-write lock only writers have fences of
// their own. A reader's is not less than any that was got before, and less than that of a
// writer that asks later. Of permits each process hands its own on with numbers that it has reserved, so those of
// permits that are held at the same time come in any order.
func (b *book) fenceOrder(r Rules) []Violation {
	var found []Violation
	report := func(ops []Op, format string, args ...any) {
		found = append(found, violation("FenceOrder", ops, format, args...))
	}
	for _, key := range b.keys() {
		byFence := map[uint64][]*hold{}
		var ended []*hold // by the grant's End
		for _, h := range b.byKey[key].holds {
			fence := h.grant.Fence
			if fence == 0 {
				report([]Op{h.grant}, "%s got %q without a fence", h.client, key)
				continue
			}
			for _, op := range h.ops {
				if op.Fence != 0 && op.Fence != fence {
					report([]Op{h.grant, op}, "the fence of %s for %q changed from %d to %d", h.client, key, fence, op.Fence)
				}
			}
			byFence[fence] = append(byFence[fence], h)
			ended = append(ended, h)
		}
		reads := func(h *hold) bool { return r.ReadWrite && h.grant.Share > 0 }
		for _, hs := range byFence {
			hs = slices.DeleteFunc(hs, reads)
			for _, h := range hs[min(1, len(hs)):] {
				if !r.Reentrant || hs[0].owner != h.owner {
					report([]Op{hs[0].grant, h.grant}, "%s and %s got %q with the same fence %d", hs[0].client, h.client, key, h.grant.Fence)
				}
			}
		}
		begun := slices.Clone(ended) // these are by the grant's Start
		slices.SortStableFunc(ended, func(a, b *hold) int { return cmp.Compare(a.grant.End, b.grant.End) })
		var greatest *hold
		i := 0
		for _, h := range begun {
			for ; i < len(ended) && ended[i].grant.End < h.grant.Start; i++ {
				if greatest == nil || ended[i].grant.Fence > greatest.grant.Fence {
					greatest = ended[i]
				}
			}
			if greatest != nil && r.Permits <= 1 && (greatest.grant.Fence > h.grant.Fence || reads(greatest) && !reads(h) && greatest.grant.Fence == h.grant.Fence) {
				report([]Op{greatest.grant, h.grant}, "%s got %q with fence %d after %s had got it with %d", h.client, key, h.grant.Fence, greatest.client, greatest.grant.Fence)
			}
		}
		if r.Reentrant {
			for _, pair := range reentries(b.byKey[key]) {
				if pair[0].grant.Fence != 0 && pair[1].grant.Fence != 0 && pair[0].grant.Fence != pair[1].grant.Fence {
					report([]Op{pair[0].grant, pair[1].grant}, "%s, which held %q with fence %d, entered it again with fence %d",
						pair[0].owner, key, pair[0].grant.Fence, pair[1].grant.Fence)
				}
			}
		}
	}
	return found
}

// reentries are pairs of holds of one owner of which the second was got while the first
// was surely held.
func reentries(p *page) [][2]*hold {
	var pairs [][2]*hold
	covers := p.covering()
	for _, h := range p.holds {
		if own := covers(h.grant, func(o *hold) bool { return o != h && o.owner == h.owner }); len(own) > 0 {
			pairs = append(pairs, [2]*hold{own[len(own)-1].hold, h})
		}
	}
	return pairs
}

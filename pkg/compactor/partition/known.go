package partition

import (
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
)

// known tells which messages a thread has, of its runs that are not live (lineage.Known). Own messages are enough: what
// else stands in a run's history is an own message of a run below it.
type known struct {
	p   *Processor
	key string // of the thread
}

// Any implements lineage.Known.
func (k known) Any(ids []string, offset int64) (bool, error) {
	if known, err := k.p.unsaved.said[k.key].Any(ids, offset); known || err != nil {
		return known, err
	}
	t := k.p.threads[k.key]
	wanted := func(m agui.Message) bool {
		_, ok := slices.BinarySearch(ids, m.ID)
		return ok
	}
	for _, h := range t.open { // expired, and still in memory
		if h.live != nil && h.live.Fold != nil && h.isExpired() && h.End < offset && slices.ContainsFunc(h.live.Fold.Messages(), wanted) {
			return true, nil
		}
	}
	looked, found := map[string]bool{}, false
	err := k.p.store.Thread(k.key).ByMessage(ids, offset, func(runs []*runstore.Metadata) (more bool, err error) {
		for _, h := range threadRunsOf(runs) {
			if now := t.runs[h.ID]; now != nil {
				h = now
			}
			// What a run that ended behind the offset said at the offset is not known; no resolution there depends on it (writeUnsealed).
			if looked[h.ID] || h.live != nil || h.Start < t.erased || h.Pending && !h.Placed || h.End >= offset {
				continue
			}
			looked[h.ID] = true
			rec, err := k.p.recordOfRun(t, h)
			if err != nil {
				return false, err
			}
			if found = slices.ContainsFunc(rec.Messages, wanted); found {
				return false, nil
			}
		}
		return true, nil
	})
	return found, err
}

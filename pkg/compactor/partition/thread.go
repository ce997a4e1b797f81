package partition

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// thread is one thread in memory: its unsealed runs, those that were sealed since it came into memory, and those that were needed
// (loader).
type thread struct {
	key, tenant, id string
	// loader loads the runs that are not in memory; nil where all are.
	loader *loader

	runs map[string]*threadRun
	// clientRunID holds the runs by client run id, in the order of their starts.
	clientRunID map[string][]*threadRun
	// open holds the runs that are not sealed, in the order of their starts.
	open []*threadRun
	// tips holds the depth of the deepest sealed run of each branch, of those that are in memory.
	tips map[string]int
	// lineage knows all of these runs but those that are pending.
	lineage *lineage.Thread
	// erased: events of the thread below this offset were erased; 0 where none were.
	erased int64
	usedAt time.Time // for eviction: when the thread's last record came
	// noExpiryBefore is a stream time before which none of its runs expires; zero if it is not known.
	noExpiryBefore time.Time
	// headers are those of the thread's last record; recent is the run that a client run id meant last.
	headers record.Headers
	recent  *threadRun
}

// newThread returns the thread of these runs.
func (p *Processor) newThread(key, tenant, id string, runs []*threadRun) (*thread, error) {
	t := &thread{key: key, tenant: tenant, id: id, runs: make(map[string]*threadRun, len(runs)), clientRunID: make(map[string][]*threadRun, len(runs)), tips: map[string]int{}}
	slices.SortFunc(runs, func(a, b *threadRun) int { return cmp.Compare(a.Start, b.Start) })
	placed := make([]lineage.Run, 0, len(runs))
	for _, h := range runs {
		t.add(h)
		if !h.Pending || h.Placed {
			placed = append(placed, h.Run)
		}
	}
	var err error
	if t.lineage, err = lineage.NewThread(placed...); err != nil {
		return nil, err
	}
	t.lineage.Tell(known{p, key})
	return t, nil
}

// add adds a run that starts after all with its client run id. Other open runs may start later: those have a record, written after
// this event was read first, and this one has none.
func (t *thread) add(h *threadRun) {
	t.runs[h.ID] = h
	t.clientRunID[h.ClientRunID()] = append(t.clientRunID[h.ClientRunID()], h)
	t.recent = nil
	if h.Sealed {
		t.tips[h.Branch] = max(t.tips[h.Branch], h.Depth)
	} else {
		at, _ := slices.BinarySearchFunc(t.open, h.Start, func(o *threadRun, start int64) int { return cmp.Compare(o.Start, start) })
		t.open = slices.Insert(t.open, at, h)
	}
}

// seal removes a run from the open ones.
func (t *thread) seal(h *threadRun) error {
	t.open = slices.DeleteFunc(t.open, func(o *threadRun) bool { return o == h })
	t.tips[h.Branch] = max(t.tips[h.Branch], h.Depth)
	return t.lineage.Add(h.Run)
}

// live gives lineage a run that is in memory and has its parent resolved.
func (t *thread) live(h *threadRun, messages func() []agui.Message) error {
	if h.isExpired() { // its history is as in its record until a real event comes
		return t.lineage.Add(h.Run)
	}
	return t.lineage.AddLive(h.Run, messages)
}

// named returns the run that a client run id means at the offset: the latest that started there or
// before; nil if there is none.
func (t *thread) named(clientRunID string, offset int64) (*threadRun, error) {
	if r := t.recent; r != nil && !r.Sealed && r.ClientRunID() == clientRunID && r.Start <= offset {
		return r, nil // events of one run follow each other, and its id is not reused before it is sealed
	}
	if err := t.load(clientRunID, offset); err != nil {
		return nil, err
	}
	runs := t.clientRunID[clientRunID]
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].Start <= offset {
			t.recent = runs[i]
			return runs[i], nil
		}
	}
	return nil, nil
}

// load loads the runs that an id means from an offset on, as their own or as the client run id.
func (t *thread) load(id string, offset int64) error {
	if t.loader == nil {
		return nil
	}
	return t.loader.ByID(id, offset)
}

// tip returns the depth of the deepest sealed run of a branch; 0 where there is none.
func (t *thread) tip(branch string) (int, error) {
	if t.loader != nil {
		if err := t.loader.tip(branch); err != nil {
			return 0, err
		}
	}
	return t.tips[branch], nil
}

// current returns the run of an event that names none: the one that started last of those that started at or before the offset
// and had not ended before it. An expired run counts as open, as a real event reopens it. Below the processed offset
// (decided) the result must be the same as the first time, so runs that were sealed since are considered, too: they are in memory.
func (t *thread) current(offset int64, decided bool) *threadRun {
	if !decided {
		if n := len(t.open); n > 0 {
			return t.open[n-1]
		}
		return nil
	}
	var best *threadRun
	for _, h := range t.runs {
		if h.Start <= offset && !h.endedBefore(offset) && (best == nil || h.Start > best.Start) {
			best = h
		}
	}
	return best
}

// freeID returns the id of a new run that starts at the offset: its client run id or, if a run of the thread has that id or client
// run id, the first free one of "ID~2", "ID~3" and so on. An id that leaves no room for the number is cut; the record has the whole
// client run id.
func (t *thread) freeID(clientRunID string, offset int64) (string, error) {
	id, n := clientRunID, 1
	if runs := t.clientRunID[clientRunID]; len(runs) > 0 {
		n = numberOf(clientRunID, runs[len(runs)-1].ID) // no lower one is free, as each took the lowest
	}
	for {
		if n > 1 {
			number := "~" + strconv.Itoa(n)
			front := clientRunID[:min(len(clientRunID), record.MaxIDBytes-len(number))]
			if len(front) < len(clientRunID) {
				front = strings.ToValidUTF8(front, "") // drops a character that was cut in two
			}
			id = front + number
		}
		if err := t.load(id, offset); err != nil {
			return "", err
		}
		if t.runs[id] == nil && (id == clientRunID || len(t.clientRunID[id]) == 0) {
			return id, nil
		}
		n++
	}
}

// numberOf returns the number that freeID put behind a client run id; 1 if it is the id itself.
func numberOf(clientRunID, id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '~')+1:])
	if id == clientRunID || err != nil {
		return 1
	}
	return n
}

// hasOtherUnsealed reports whether a run other than h is unsealed: then decisions for h may depend on a state that no committed record
// has later.
func (t *thread) hasOtherUnsealed(h *threadRun) bool {
	return len(t.open) > 1 || len(t.open) == 1 && t.open[0] != h
}

// thread returns a thread by its key.
func (p *Processor) thread(key, tenant, id string) (*thread, error) {
	if t := p.threads[key]; t != nil {
		return t, nil
	}
	unsealed, err := p.store.Thread(key).Unsealed()
	if err != nil {
		return nil, err
	}
	t, err := p.newThread(key, tenant, id, threadRunsOf(unsealed))
	if err != nil {
		return nil, err
	}
	if err := p.loadEnded(t); err != nil {
		return nil, err
	}
	if t.erased, err = p.store.Thread(key).ErasedBelow(); err != nil {
		return nil, err
	}
	p.threads[key] = t
	return t, nil
}

// loadEnded loads the sealed runs that a thread starts with: those that ended at or behind the record that is being processed, which
// is read again then, and the one that ended last before it, which is the parent of most new runs.
func (p *Processor) loadEnded(t *thread) error {
	stored := p.store.Thread(t.key)
	last, all, err := stored.EndedAt(p.next - 1)
	if err != nil {
		return err
	}
	t.loader = &loader{thread: t, store: stored, requested: map[loaderKey]struct{}{}}
	if err := t.loader.put(last...); err != nil {
		return err
	}
	if all {
		t.loader = nil
	} else {
		t.lineage.LoadFrom(t.loader)
	}
	return nil
}

// size is about what the thread holds in memory, in runs.
func (t *thread) size() int { return threadOverhead + len(t.runs) }

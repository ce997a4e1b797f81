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

// thread is what a partition holds at hand of one thread: the heads of all runs that are not sealed, of
// those that are since it is at hand, and of those that somebody asked for.
type thread struct {
	key, tenant, id string
	// rest brings the runs that are not at hand; nil where all are.
	rest *rest

	heads map[string]*head
	// given holds the runs by the id that the agent uses, in the order of their starts.
	given map[string][]*head
	// open holds the runs that are not sealed, in the order of their starts.
	open []*head
	// tips holds the depth of the deepest sealed run of each branch, of those that are at hand.
	tips map[string]int
	// lineage knows all of these runs but those that are pending.
	lineage *lineage.Thread
	// erased: events of the thread below this offset were erased; 0 where none were.
	erased int64
	usedAt time.Time // for eviction: when the thread's last record came
	// silentAt is a time before which none of its runs is to be given up; zero where nobody has looked.
	silentAt time.Time
	// headers are those of the thread's last record; recent is the run that the agent's id meant last.
	headers record.Headers
	recent  *head
}

// newThread returns the thread of these runs.
func (p *Processor) newThread(key, tenant, id string, heads []*head) (*thread, error) {
	t := &thread{key: key, tenant: tenant, id: id, heads: make(map[string]*head, len(heads)), given: make(map[string][]*head, len(heads)), tips: map[string]int{}}
	slices.SortFunc(heads, func(a, b *head) int { return cmp.Compare(a.Start, b.Start) })
	placed := make([]lineage.Run, 0, len(heads))
	for _, h := range heads {
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

// add takes in a run that starts after all of its id that are there. Of the open ones some may start later: those have
// a record between C and P, and this one has none.
func (t *thread) add(h *head) {
	t.heads[h.ID] = h
	t.given[h.Given()] = append(t.given[h.Given()], h)
	t.recent = nil
	if h.Sealed {
		t.tips[h.Branch] = max(t.tips[h.Branch], h.Depth)
	} else {
		at, _ := slices.BinarySearchFunc(t.open, h.Start, func(o *head, start int64) int { return cmp.Compare(o.Start, start) })
		t.open = slices.Insert(t.open, at, h)
	}
}

// seal takes a run out of the open ones.
func (t *thread) seal(h *head) error {
	t.open = slices.DeleteFunc(t.open, func(o *head) bool { return o == h })
	t.tips[h.Branch] = max(t.tips[h.Branch], h.Depth)
	return t.lineage.Add(h.Run)
}

// live lets lineage see a placed run that is in memory and open.
func (t *thread) live(h *head, messages func() []agui.Message) error {
	if !h.Open() { // abandoned: its history stands until a real event comes
		return t.lineage.Add(h.Run)
	}
	return t.lineage.AddLive(h.Run, messages)
}

// named returns the run that the agent's id means at the offset: the latest that started there or
// before; nil if there is none.
func (t *thread) named(given string, offset int64) (*head, error) {
	if r := t.recent; r != nil && !r.Sealed && r.Given() == given && r.Start <= offset {
		return r, nil // events of one run follow each other, and its id is not used again before it is sealed
	}
	if err := t.ask(given, offset); err != nil {
		return nil, err
	}
	runs := t.given[given]
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].Start <= offset {
			t.recent = runs[i]
			return runs[i], nil
		}
	}
	return nil, nil
}

// ask has the runs at hand that an id stands for from an offset on, as the agent's or as their own.
func (t *thread) ask(id string, offset int64) error {
	if t.rest == nil {
		return nil
	}
	return t.rest.Named(id, offset)
}

// tip returns the depth of the deepest sealed run of a branch; 0 where there is none.
func (t *thread) tip(branch string) (int, error) {
	if t.rest != nil {
		if err := t.rest.tip(branch); err != nil {
			return 0, err
		}
	}
	return t.tips[branch], nil
}

// current returns the run to which an event belongs that names none: of those that started at or
// before the offset and had not ended before it, the one with the greatest start. An abandoned run
// counts as open, since its end yields to a real event. Below P (decided) the answer must be the
// one that was given before, so runs that ended since are asked as well: they are at hand.
func (t *thread) current(offset int64, decided bool) *head {
	if !decided {
		if n := len(t.open); n > 0 {
			return t.open[n-1]
		}
		return nil
	}
	var best *head
	for _, h := range t.heads {
		if h.Start <= offset && !h.endedBefore(offset) && (best == nil || h.Start > best.Start) {
			best = h
		}
	}
	return best
}

// freeID returns the id under which a run with the agent's id is kept, which starts at the offset: that id,
// or where a run has it or had it from its agent, the id with "~2", "~3", … that is free. An id that leaves
// no room for the number is cut before it: what it was stands in the record as the given one.
func (t *thread) freeID(given string, offset int64) (string, error) {
	id, n := given, 1
	if runs := t.given[given]; len(runs) > 0 {
		n = numberOf(given, runs[len(runs)-1].ID) // no lower one is free, as each took the lowest
	}
	for {
		if n > 1 {
			number := "~" + strconv.Itoa(n)
			front := given[:min(len(given), record.MaxIDBytes-len(number))]
			if len(front) < len(given) {
				front = strings.ToValidUTF8(front, "") // a character that was cut in two is left out
			}
			id = front + number
		}
		if err := t.ask(id, offset); err != nil {
			return "", err
		}
		if t.heads[id] == nil && (id == given || len(t.given[id]) == 0) {
			return id, nil
		}
		n++
	}
}

// numberOf returns the number that freeID put behind an agent's id; 1 where it is the id itself.
func numberOf(given, id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '~')+1:])
	if id == given || err != nil {
		return 1
	}
	return n
}

// unsettled reports whether a run other than h has not ended: what is decided for h then rests on
// something that no committed record may say later.
func (t *thread) unsettled(h *head) bool {
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
	t, err := p.newThread(key, tenant, id, headsOf(unsealed))
	if err != nil {
		return nil, err
	}
	if err := p.bringEnded(t); err != nil {
		return nil, err
	}
	if t.erased, err = p.store.Thread(key).ErasedBelow(); err != nil {
		return nil, err
	}
	p.threads[key] = t
	return t, nil
}

// bringEnded has those sealed runs at hand that a thread begins with: those that ended at the record that is being
// processed or behind, which is read again then, and the one that ended last before it, which is the parent of most.
func (p *Processor) bringEnded(t *thread) error {
	stored := p.store.Thread(t.key)
	last, all, err := stored.EndedAt(p.next - 1)
	if err != nil {
		return err
	}
	t.rest = &rest{thread: t, store: stored, asked: map[restKey]struct{}{}}
	if err := t.rest.bring(last...); err != nil {
		return err
	}
	if all {
		t.rest = nil
	} else {
		t.lineage.Leave(t.rest)
	}
	return nil
}

// size is about what the thread holds, in heads.
func (t *thread) size() int { return threadHeads + len(t.heads) }

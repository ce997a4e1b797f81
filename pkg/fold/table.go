package fold

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/internal/few"
	"github.com/skeinhq/skein/pkg/record"
)

// Member is a run in a Table.
type Member interface {
	comparable
	Meta() *Metadata
}

// Table contains the runs of one thread and finds the run that a raw record belongs to. The zero Table has none.
type Table[M Member] struct {
	byID     few.Map[string, M]
	byStart  []M
	byClient few.Map[string, []M] // by start
	open     []M                  // runs that are not sealed, by start
	sealed   int64                // the highest Next of the sealed runs
	recent   M                    // the last result of Named
}

func insertByStart[M Member](list []M, m M) []M {
	at := len(list)
	if at > 0 && list[at-1].Meta().Start > m.Meta().Start {
		at, _ = slices.BinarySearchFunc(list, m.Meta().Start, func(o M, start int64) int { return cmp.Compare(o.Meta().Start, start) })
	}
	return slices.Insert(list, at, m)
}

// Add adds a run.
func (t *Table[M]) Add(m M) {
	meta := m.Meta()
	t.byID.Set(meta.ID, m)
	t.recent = *new(M)
	t.byStart = insertByStart(t.byStart, m)
	t.byClient.Set(meta.ClientRunID(), insertByStart(t.byClient.At(meta.ClientRunID()), m))
	if meta.Sealed {
		t.sealed = max(t.sealed, meta.Next)
	} else {
		t.open = insertByStart(t.open, m)
	}
}

// Remove removes a run that is not sealed.
func (t *Table[M]) Remove(m M) {
	meta, is := m.Meta(), func(o M) bool { return o == m }
	t.byID.Delete(meta.ID)
	t.byStart, t.open = slices.DeleteFunc(t.byStart, is), slices.DeleteFunc(t.open, is)
	t.byClient.Set(meta.ClientRunID(), slices.DeleteFunc(t.byClient.At(meta.ClientRunID()), is))
	t.recent = *new(M)
}

// Seal marks a run of the table as sealed.
func (t *Table[M]) Seal(m M) {
	t.open = slices.DeleteFunc(t.open, func(o M) bool { return o == m })
	t.sealed = max(t.sealed, m.Meta().Next)
}

// Get returns the run with this id, or nil.
func (t *Table[M]) Get(id string) M { return t.byID.At(id) }

// Runs returns all runs in the order of their starts.
func (t *Table[M]) Runs() []M { return t.byStart }

// Unsealed returns the runs that are not sealed, in the order of their starts.
func (t *Table[M]) Unsealed() []M { return t.open }

// lastNamed returns the last result of Named. ok reports whether Named would return it again.
func (t *Table[M]) lastNamed(clientRunID string, offset int64) (m M, ok bool) {
	if t.recent == m {
		return m, false
	}
	// This shortcut is correct because events of one run follow each other, and a client run id is not reused before its
	// run is sealed.
	r := t.recent.Meta()
	return t.recent, !r.Sealed && r.ClientRunID() == clientRunID && r.Start <= offset
}

// Of returns the run that a raw record belongs to, or nil. With a client run id it is the latest run of that id that
// started at or before the record's offset. An event without one belongs to the current run.
func (t *Table[M]) Of(d *Decoded) (found M) {
	switch id := d.ClientRunID(); {
	case id != "":
		found = t.Named(id, d.Offset)
	case d.Headers.Kind == record.KindEvent:
		found = t.Current(d.Offset)
	}
	return found
}

// Named returns the latest run with this client run id that started at or before the offset, or nil.
func (t *Table[M]) Named(clientRunID string, offset int64) (found M) {
	if runs := startedBy(t.byClient.At(clientRunID), offset); len(runs) > 0 {
		found = runs[len(runs)-1]
		t.recent = found
	}
	return found
}

// startedBy returns the runs of a list, sorted by start, that started at or before the offset.
func startedBy[M Member](list []M, offset int64) []M {
	if n := len(list); n == 0 || list[n-1].Meta().Start <= offset {
		return list
	}
	n, _ := slices.BinarySearchFunc(list, offset+1, func(m M, at int64) int { return cmp.Compare(m.Meta().Start, at) })
	return list[:n]
}

// Current returns the run of an event without a client run id, or nil. It is the one that started last of the runs that
// started at or before the offset and had not ended before it. An expired run counts as open, because an event
// reactivates it.
func (t *Table[M]) Current(offset int64) (found M) {
	among := t.open
	if offset < t.sealed {
		among = t.byStart
	}
	for _, m := range slices.Backward(startedBy(among, offset)) {
		if meta := m.Meta(); !meta.Sealed || meta.Next > offset {
			return m
		}
	}
	return found
}

// freeID returns the id of a new run that starts at the offset. It is the client run id unless a run of the thread already has this id or
// client run id; then it is the first free one of "ID~2", "ID~3" and so on. A client run id that leaves no room for the number is cut; the
// record has the complete one. The function load adds the runs of an id to the table.
func (t *Table[M]) freeID(clientRunID string, offset int64, load func(id string, offset int64) error) (string, error) {
	id, n := clientRunID, 1
	if runs := t.byClient.At(clientRunID); len(runs) > 0 {
		n = numberOf(clientRunID, runs[len(runs)-1].Meta().ID) // lower numbers are used: each run took the lowest free one
	}
	for none := *new(M); ; n++ {
		if n > 1 {
			number := "~" + strconv.Itoa(n)
			front := clientRunID[:min(len(clientRunID), record.MaxIDBytes-len(number))]
			if len(front) < len(clientRunID) {
				front = strings.ToValidUTF8(front, "") // removes an incomplete last character
			}
			id = front + number
		}
		if err := load(id, offset); err != nil {
			return "", err
		}
		if t.Get(id) == none && (id == clientRunID || len(t.byClient.At(id)) == 0) {
			return id, nil
		}
	}
}

// numberOf returns the number that freeID appended to a client run id; 1 if it appended none.
func numberOf(clientRunID, id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '~')+1:])
	if id == clientRunID || err != nil {
		return 1
	}
	return n
}

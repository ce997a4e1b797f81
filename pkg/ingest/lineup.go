package ingest

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

const (
	// claimFor is how long a claim counts after its last record, by the records' timestamps; claimAgain is how often its process writes it
	// again.
	claimFor, claimAgain = 10 * time.Second, 3 * time.Second
	// claimWindow is how far back a process reads a thread, so that it meets a record of every claim that counts. What is more than claimFor
	// is for clocks that differ, and for a renewal that comes after the claim's end.
	claimWindow = claimFor + 5*time.Second
)

// claim is the value of a record of kind claim. Its header run-id names the run. See ADR 029.
type claim struct {
	ID string `json:"id"`
	// At is the offset of the claim's first record; nil in this one.
	At        *int64 `json:"at,omitempty"`
	Withdrawn bool   `json:"withdrawn,omitempty"`
}

// standing is a claim that counts.
type standing struct {
	id, run string
	at      int64
	seen    time.Time // timestamp of the last record
}

// lineup is the claims of a thread. It depends on the thread's records of the last claimWindow alone, so all processes agree on it.
// Therefore a claim that is refused counts until it is withdrawn: whether it was refused depends on older records.
type lineup struct {
	// standing are the claims that count, by offset. The first one holds the thread, the others wait.
	standing []standing
	// gone are those that were withdrawn, by id, and ended the offsets of the ends of runs: the last renewal may come after that.
	gone  map[string]bool
	ended map[string]int64
	// expired are those that were late, by id. Renewed, they count again, but a start that waits has lost its place: a later one may have
	// begun.
	expired map[string]bool
}

func newLineup() lineup {
	return lineup{gone: map[string]bool{}, ended: map[string]int64{}, expired: map[string]bool{}}
}

// take applies the thread's next record. For the first record of a claim, it returns the claim's id and those before it, first come first.
// An error means that a newer Skein wrote the record.
func (l *lineup) take(m *kgo.Record) (id string, before []standing, err error) {
	if !concernsStops(m) {
		return "", nil, nil
	}
	end, err := endOf(m)
	if err != nil {
		return "", nil, err
	}
	if end.status != "" {
		l.ended[end.runID] = m.Offset
		l.standing = slices.DeleteFunc(l.standing, func(s standing) bool { return s.run == end.runID })
		return "", nil, nil
	}
	h, bad := record.ParseHeaders(m.Headers)
	var c claim
	if bad != nil || h.Kind != record.KindClaim || h.RunID == "" || isRepeat(m) || json.Unmarshal(m.Value, &c) != nil {
		return "", nil, nil //nolint:nilerr // bad data claims nothing
	}
	l.standing = slices.DeleteFunc(l.standing, func(s standing) bool {
		late := m.Timestamp.Sub(s.seen) > claimFor
		if late {
			l.expired[s.id] = true
		}
		return late
	})
	i := slices.IndexFunc(l.standing, func(s standing) bool { return s.id == c.ID })
	switch {
	case c.Withdrawn:
		l.gone[c.ID] = true
		l.standing = slices.DeleteFunc(l.standing, func(s standing) bool { return s.id == c.ID })
	case l.gone[c.ID] || c.At != nil && *c.At < l.ended[h.RunID]:
	case i >= 0:
		l.standing[i].seen = m.Timestamp
	case c.At != nil:
		l.add(standing{c.ID, h.RunID, *c.At, m.Timestamp})
	default:
		before = slices.Clone(l.standing)
		l.add(standing{c.ID, h.RunID, m.Offset, m.Timestamp})
		return c.ID, before, nil
	}
	return "", nil, nil
}

func (l *lineup) add(s standing) {
	i, _ := slices.BinarySearchFunc(l.standing, s.at, func(s standing, at int64) int { return cmp.Compare(s.at, at) })
	l.standing = slices.Insert(l.standing, i, s)
}

package migrate

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// places maps the old positions in records to new ones. It takes about 100 bytes per run.
type places struct {
	threads map[string]*threadPlaces // by key
	// others maps the positions of records on a wrong partition.
	others map[record.Position]record.Position
	// retried has the old positions of the dead letters that were published again.
	retried map[record.Position]bool
	// refused has the old positions of requests to erase that became dead letters.
	refused map[record.Position]bool
	// erased has the old offset below which an erasure has erased a thread's dead letters, by the thread's key.
	erased map[string]int64
	// committed has, by new partition, the first copy of an event at or after the old compactors' offset: the new compactors' offset.
	committed map[int32]int64
	// events are the offsets of raw events that can be read, by new partition.
	events map[int32]kafka.Span
}

// threadPlaces has the offsets of one thread, whose raw events are on one old and one new partition.
type threadPlaces struct {
	// old are the offsets in records, sorted by seal; found are their new ones, or -1.
	old, found []int64
	// ends are the offsets of the first and last raw events of runs. Those that are gone get reserved offsets in the same order.
	ends []int64
}

func (t *threadPlaces) want(offsets ...int64) { t.old = append(t.old, offsets...) }

func newPlaces() *places {
	return &places{
		threads: map[string]*threadPlaces{}, others: map[record.Position]record.Position{},
		retried: map[record.Position]bool{}, refused: map[record.Position]bool{}, erased: map[string]int64{}, committed: map[int32]int64{},
	}
}

func (p *places) thread(key string) *threadPlaces {
	t := p.threads[key]
	if t == nil {
		t = &threadPlaces{}
		p.threads[key] = t
	}
	return t
}

// wantRun adds the positions in a run record.
func (p *places) wantRun(r *record.Run) error {
	key, err := record.ThreadKey(r.Tenant, r.ThreadID)
	if err != nil {
		return fmt.Errorf("reading run record: %w", err)
	}
	t := p.thread(key)
	last := lastOf(r.Raw)
	t.want(r.Raw.First, last)
	t.ends = append(t.ends, r.Raw.First, last)
	for _, part := range r.Raw.Ranges {
		t.want(part[0], part[1]-1)
	}
	if r.Cut != nil {
		t.want(r.Cut.Next - 1)
	}
	if r.LateError != nil {
		t.want(r.LateError.Offset)
		t.ends = append(t.ends, r.LateError.Offset)
	}
	return nil
}

// lastOf returns the offset of a run's last raw record, or of its first one if the record covers none (record.Open).
func lastOf(raw record.Raw) int64 { return max(raw.First, raw.Next-1) }

func (p *places) seal() {
	for _, t := range p.threads {
		for _, list := range []*[]int64{&t.old, &t.ends} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		t.found = slices.Repeat([]int64{-1}, len(t.old))
	}
}

func (p *places) erase(key []byte, below int64) {
	p.erased[string(key)] = max(p.erased[string(key)], below)
}

// note adds the new position of a copied event. own: it was on the old partition of its key, so runs may name it.
func (p *places) note(m *kgo.Record, from record.Position, own bool) {
	if t := p.threads[string(m.Key)]; t != nil && own {
		if i, ok := slices.BinarySearch(t.old, from.Offset); ok {
			t.found[i] = m.Offset
		}
	}
	if _, ok := p.others[from]; ok {
		p.others[from] = record.Position{Partition: m.Partition, Offset: m.Offset}
	}
}

// at returns the new offset of an old one; false if the raw event is gone.
func (t *threadPlaces) at(old int64) (int64, bool) {
	i, ok := slices.BinarySearch(t.old, old)
	if !ok || t.found[i] < 0 {
		return 0, false
	}
	return t.found[i], true
}

// gone reports whether a raw event of the new set cannot be read.
func (p *places) gone(partition int32, offset int64) bool { return offset < p.events[partition].Start }

// named returns the partition and the offsets of the first and last event in a run record of the new set; -1 for events that are gone and
// for a wrong partition.
func (p *places) named(partition int32, raw record.Raw) [3]int64 {
	at := [3]int64{int64(partition), raw.First, lastOf(raw)}
	for i, offset := range at {
		if i > 0 && p.gone(partition, offset) {
			at[i] = -1
		}
	}
	if raw.Partition != partition {
		at[0] = -1
	}
	return at
}

// wanted returns what named should return for the copy of an old run record.
func (p *places) wanted(thread string, raw record.Raw, partitions int32) [3]int64 {
	at := [3]int64{int64(record.Partition([]byte(thread), partitions)), -1, -1}
	for i, old := range []int64{raw.First, lastOf(raw)} {
		if offset, ok := p.threads[thread].at(old); ok {
			at[i+1] = offset
		}
	}
	return at
}

// end returns the new offset of a run's first or last event, or a reserved offset if the event is gone.
func (t *threadPlaces) end(old int64) int64 {
	if at, ok := t.at(old); ok {
		return at
	}
	i, _ := slices.BinarySearch(t.ends, old)
	return int64(i)
}

// check checks that no raw event was lost in the copy: all missing ones are before the found ones, and enough offsets are reserved.
func (p *places) check(room func(thread string) int64) error {
	for key, t := range p.threads {
		found := false
		for i, at := range t.found {
			if at >= 0 {
				found = true
			} else if found {
				return fmt.Errorf("mapping positions: an event of thread %q at the old offset %d is not in the new set", key, t.old[i])
			}
		}
		gone := int64(0)
		for _, end := range t.ends {
			if _, ok := t.at(end); !ok {
				gone++
			}
		}
		if room := room(key); gone > room {
			return fmt.Errorf("mapping positions: %d events of thread %q that its runs begin or end with are gone, there was room for %d: "+
				"they expired before they were copied; begin again with a new prefix", gone, key, room)
		}
	}
	return nil
}

// run replaces a run record's positions and encodes it.
func (p *places) run(r *record.Run, partition int32) ([]byte, error) {
	key, err := record.ThreadKey(r.Tenant, r.ThreadID)
	if err != nil {
		return nil, fmt.Errorf("reading run record: %w", err)
	}
	t := p.threads[key]
	old := r.Raw
	_, whole := t.at(old.First)
	r.Raw.Partition, r.Raw.First, r.Raw.Next = partition, t.end(old.First), t.end(lastOf(old))+1
	r.Raw.Ranges = [][2]int64{{r.Raw.First, r.Raw.Next}}
	if old.Next == old.First {
		r.Raw.Next, r.Raw.Ranges = r.Raw.First, nil
	}
	if whole {
		r.Raw.Ranges = make([][2]int64, len(old.Ranges))
		for i, part := range old.Ranges {
			r.Raw.Ranges[i] = [2]int64{t.end(part[0]), t.end(part[1]-1) + 1}
		}
	}
	if late := r.LateError; late != nil {
		r.LateError = &record.LateError{Offset: t.end(late.Offset), Event: late.Event, Interrupts: late.Interrupts}
	}
	cut := r.Cut
	if cut != nil {
		r.Cut = &record.Cut{Events: cut.Events, Next: r.Raw.First}
		if at, ok := t.at(cut.Next - 1); ok {
			r.Cut.Next = at + 1
		}
	}
	value, err := record.EncodeRun(r)
	if err != nil {
		return nil, err
	}
	if cut != nil { // references from the time of the cut have the run's positions of that time
		was, is := old, r.Raw
		was.Next, is.Next = cut.Next, r.Cut.Next
		value = bytes.ReplaceAll(value, reference(was), reference(is))
	}
	if r.Truncated { // the references have the run's positions
		value = bytes.ReplaceAll(value, reference(old), reference(r.Raw))
	}
	return value, nil
}

// reference returns the end of a reference in a record that was cut.
func reference(raw record.Raw) []byte {
	return fmt.Appendf(nil, `"from":%q,"to":%q}`,
		record.Position{Partition: raw.Partition, Offset: raw.First}, record.Position{Partition: raw.Partition, Offset: raw.Next})
}

// findPlaces reads the positions in the old set's records, and finds their new ones.
func (g *migration) findPlaces(ctx context.Context, committed map[int32]int64) (*places, error) {
	p := newPlaces()
	for m, err := range g.latest(ctx, g.from, g.old.Runs) {
		if err != nil {
			return nil, err
		}
		if len(m.Value) == 0 {
			continue
		}
		switch headers, err := record.ParseHeaders(m.Headers); {
		case err != nil:
			return nil, fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
		case headers.Kind == record.KindRun:
			r, err := record.DecodeRun(m.Value)
			if err == nil {
				err = p.wantRun(r)
			}
			if err != nil {
				return nil, fmt.Errorf("reading run record %d:%d: %w", m.Partition, m.Offset, err)
			}
		case headers.Kind == record.KindErase:
			below, err := record.DecodeErased(m.Value)
			if err != nil {
				return nil, fmt.Errorf("reading erasure %d:%d: %w", m.Partition, m.Offset, err)
			}
			p.thread(string(m.Key)).want(below - 1)
			p.erase(m.Key, below)
		}
	}
	for m, err := range g.all(ctx, g.from, g.old.DeadLetters) {
		if err != nil {
			return nil, err
		}
		at, ok := positionIn(m, record.HeaderPosition)
		if headers, err := record.ParseHeaders(m.Headers); ok && err == nil && headers.Kind == record.KindErase {
			p.refused[at] = true
		}
		switch {
		case !ok:
		case g.isThreads(m.Key, at.Partition):
			p.thread(string(m.Key)).want(at.Offset)
		default:
			p.others[at] = record.Position{Partition: -1}
		}
	}
	p.seal()
	var err error
	if p.events, err = kafka.Spans(ctx, g.adm, g.new.Events); err != nil {
		return nil, err
	}
	for m, err := range g.all(ctx, g.to, g.new.Events) {
		if err != nil {
			return nil, err
		}
		from, ok := positionIn(m, record.HeaderCopiedFrom)
		if !ok {
			continue
		}
		own := g.isThreads(m.Key, from.Partition)
		p.note(m, from, own)
		if of, ok := positionIn(m, record.HeaderRetryOf); ok {
			p.retried[of] = true
		}
		// The erasure of a thread without runs may have left no record.
		if headers, err := record.ParseHeaders(m.Headers); err == nil && headers.Kind == record.KindErase && own && !p.refused[from] {
			p.erase(m.Key, from.Offset)
		}
		if _, ok := p.committed[m.Partition]; !ok && from.Offset >= committed[from.Partition] {
			p.committed[m.Partition] = m.Offset
		}
	}
	return p, p.check(func(thread string) int64 { return g.state.Rooms[record.Partition([]byte(thread), g.counts[1])] })
}

// positionIn returns the position in a header.
func positionIn(m *kgo.Record, name string) (p record.Position, ok bool) {
	for _, h := range m.Headers {
		if h.Key == name {
			at, err := record.ParsePosition(string(h.Value))
			p, ok = at, err == nil
		}
	}
	return p, ok
}

package partition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// placement is what a run's first event decides for good: its place in the thread and the history
// that its fold starts from.
type placement struct {
	lineage.Placement
	input    *agui.RunAgentInput
	inputSum string
	parent   lineage.History
	// base is the history that the run's messages are told against; empty without a base.
	base lineage.History
	// baseRefolds is how often that history was told anew. While the run is open it is not.
	baseRefolds int
	fold        *compact.Run
	// before is the run as it was before that event: see placeRecord.
	before pending
}

// pending is what there is of a run before its first event.
type pending struct {
	input    *agui.RunAgentInput
	inputSum string
	early    map[string]int64
	ranges   [][2]int64
	next     int64
	seq      fold.Sequence
	producer fold.Producer
	// first is that event's offset, at the stream time then.
	first int64
	at    time.Time
}

func (r *run) pending(first int64, at time.Time) pending {
	return pending{
		first: first, at: at,
		input: r.input, inputSum: r.inputSum, early: r.early, ranges: r.ranges.List(),
		next: max(r.head.Next, r.head.Start), seq: r.sequence().Clone(), producer: r.producer,
	}
}

// place works out a run's placement as of an offset, where no record has it; it changes nothing. ev is the run's first
// event, or nil for a preliminary placement of a pending run.
func (p *Processor) place(r *run, ev *agui.Event, offset int64) (*placement, error) {
	pl := &placement{}
	if r.decided != nil {
		*pl = *r.decided
	}
	pl.input, pl.inputSum = r.input, r.inputSum
	if pl.input == nil && ev != nil && ev.Type == agui.RunStarted {
		pl.input, pl.inputSum = fold.InputOf(ev, r.head.ID)
	}
	if r.decided == nil {
		if err := p.placeAmong(r, pl, ev, offset); err != nil {
			return nil, err
		}
	} else if pl.Run.Parent != "" { // what its end rests on: see sinceSnapshot
		if err := r.thread.ask(pl.Run.Parent, r.head.Start); err != nil {
			return nil, err
		}
	}
	by := pl.Run.ParentBy
	pl.Run.HasInput = pl.input != nil && !lineage.Normalised(by, pl.parent, pl.input)
	pl.fold, pl.input = fold.Start(r.head.ID, by, pl.parent, pl.input, p.cfg.KeepEvents)
	return pl, nil
}

// placeAmong places a run among the runs of its thread.
func (p *Processor) placeAmong(r *run, pl *placement, ev *agui.Event, offset int64) (err error) {
	start := lineage.Start{RunID: r.head.ID, GivenID: r.head.Given(), Offset: offset, Input: pl.input}
	if ev != nil && ev.Type == agui.RunStarted {
		start.ParentRunID = ev.ParentRunID
	}
	if pl.input != nil && start.ParentRunID == "" {
		start.ParentRunID = pl.input.ParentRunID
	}
	if pl.Placement, err = r.thread.lineage.Place(start); err != nil || pl.Run.Parent == "" {
		return err
	}
	if pl.parent, err = p.history(r.thread, pl.Run.Parent); err != nil {
		return err
	}
	if pl.Run.Base != "" {
		pl.base = pl.parent
		base := r.thread.heads[pl.Run.Base] // at hand, since the run was placed beside it
		if base == nil {
			return fmt.Errorf("placing run: %w: its base", runstore.ErrMissing)
		}
		pl.baseRefolds = base.Refolds
		return nil
	}
	// What it takes over has to be in the record of its place, beside an input that came before its first event.
	if !p.fits(pl.parent, r.input) {
		pl.parent = lineage.History{}
		pl.Anomalies = append(pl.Anomalies, lineage.AnomalyPlacedAlone)
	}
	return nil
}

// fits reports whether a record has room for a history and an input. It is told by their bytes as a record has them, so that it
// makes no difference whether they have been in one.
func (p *Processor) fits(at lineage.History, input *agui.RunAgentInput) bool {
	room := p.cfg.RecordLimit * 7 / 8
	bytes := at.Bytes() + len(at.State)
	if input != nil {
		bytes += len(input.Raw)
	}
	if bytes <= room { // in a record they are no more
		return true
	}
	bytes = compactedBytes(at.Messages) + len(record.Compacted(at.State))
	if input != nil {
		bytes += compactedBytes(input.Messages) + len(record.Compacted(agui.Without(input.Raw, "messages")))
	}
	return bytes <= room
}

func compactedBytes(messages []agui.Message) (n int) {
	for _, m := range messages {
		n += len(record.Compacted(m.Raw))
	}
	return n
}

// decide makes a placement the run's own.
func (p *Processor) decide(r *run, pl *placement) error {
	h := r.head
	start := h.Start // of its first record, which may be the input
	h.Run = pl.Run
	h.Start, h.Pending, h.Placed, h.RawLost = start, false, false, r.rec.RawLost
	r.setPlacement(pl)
	for rule, n := range r.early {
		for range n {
			pl.fold.Note(rule)
		}
	}
	r.early, r.input, r.fold, r.base = nil, nil, pl.fold, pl.base
	r.rec.Kept = p.cfg.KeepEvents
	if pl.Concurrent || r.thread.unsettled(h) {
		p.settle(r.thread)
	}
	r.goesOnFrom(pl.parent)
	r.decided = nil
	if !r.placed {
		r.decided = &placement{Placement: pl.Placement, parent: pl.parent, base: pl.base, baseRefolds: pl.baseRefolds, before: pl.before}
	}
	return r.show()
}

// setPlacement fills what a record says of lineage and input.
func (r *run) setPlacement(pl *placement) {
	r.rec.Lineage, r.rec.Base, r.rec.BaseRefolds = fold.RecordLineage(pl.Run), pl.Run.Base, pl.baseRefolds
	fold.FillInput(&r.rec, pl.parent, pl.base, pl.input, pl.inputSum)
}

// setInput keeps an input that was sent beside the stream.
func (r *run) setInput(in *agui.RunAgentInput, sum string) { r.input, r.inputSum = in, sum }

// history returns a placed run's history as it stands: of a live run out of its fold, of any other
// out of its record and the chain of bases below.
func (p *Processor) history(t *thread, runID string) (lineage.History, error) {
	key, err := record.RunKey(t.tenant, t.id, runID)
	if err != nil {
		return lineage.History{}, fmt.Errorf("restoring history: %w", err)
	}
	if r := p.runs[key]; r != nil && r.fold != nil {
		return lineage.History{Messages: r.fold.Messages(), State: r.fold.State()}, nil
	}
	// Down the chain until a history is at hand, then up again.
	var chain []lineage.Content
	sealed := true
	at := lineage.History{}.Share()
	for key != "" {
		if h, ok := p.histories.get(key); ok {
			at = h
			break
		}
		rec, _, err := p.recordOf(key)
		if err != nil {
			return lineage.History{}, err
		}
		if len(chain) == 0 {
			sealed = rec.Open == nil
		}
		chain = append(chain, contentOf(rec)) // of a long chain no more is held than that
		key = ""
		if rec.Base != "" {
			if key, err = record.RunKey(t.tenant, t.id, rec.Base); err != nil {
				return lineage.History{}, fmt.Errorf("restoring history: %w", err)
			}
		}
	}
	if !sealed {
		at = at.Unshare() // nobody goes on from what an open run says for now
	}
	slices.Reverse(chain)
	if at, err = lineage.RestoreFrom(at, chain...); err != nil {
		return lineage.History{}, fmt.Errorf("restoring history: %w", err)
	}
	if len(chain) > 0 && sealed {
		at = at.Share()
		if key, err = record.RunKey(t.tenant, t.id, runID); err == nil {
			p.histories.put(key, at)
		}
	}
	return at, nil
}

func contentOf(rec *record.Run) lineage.Content {
	return lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State}
}

// recordOf returns a run's latest record, committed or about to be, and the size of a committed one.
func (p *Processor) recordOf(key string) (*record.Run, int, error) {
	if value := p.unsaved[key]; value != nil {
		rec, err := record.DecodeRun(value)
		return rec, 0, err
	}
	return p.store.Record(key)
}

// bring loads a run by its record key, for the next transaction, and takes it off the room for expiries. One that was not
// in memory leaves with that.
func (p *Processor) bring(key string, now time.Time) (*run, error) {
	parts, err := record.SplitKey(key)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	threadKey, err := record.ThreadKey(parts[0], parts[1])
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	t, err := p.thread(threadKey, parts[0], parts[1])
	if err != nil {
		return nil, err
	}
	h := t.heads[parts[2]]
	if h == nil {
		return nil, fmt.Errorf("loading run: %w: %s", runstore.ErrMissing, key)
	}
	left := h.live == nil
	r, err := p.load(t, h, now)
	if err != nil {
		return nil, err
	}
	if left {
		r.touchedAt = time.Time{}
	}
	p.room.expiries.Add(int64(-r.size()))
	return r, nil
}

// load brings a run into memory that is not sealed.
func (p *Processor) load(t *thread, h *head, now time.Time) (*run, error) {
	if h.live != nil {
		return h.live, nil
	}
	key, err := record.RunKey(t.tenant, t.id, h.ID)
	if err != nil {
		return nil, fmt.Errorf("loading run: %w", err)
	}
	rec, size, err := p.recordOf(key)
	if err != nil {
		return nil, err
	}
	if rec.Open == nil {
		return nil, fmt.Errorf("loading run: its record of offset %d is not open", rec.Raw.Next)
	}
	r := newRun(t, key, h, now)
	r.wait = cmp.Or(p.silent.byKey[key], p.abandoned.byKey[key])
	if err := r.resume(rec, size); err != nil {
		return nil, err
	}
	if rec.Open.Pending {
		if rec.Open.Placed {
			if r.decided, err = p.decidedBy(t, h, rec); err != nil {
				return nil, err
			}
			r.goesOnFrom(r.decided.parent)
		}
	} else {
		// What its end rests on: see sinceSnapshot, historyKey.
		if rec.ParentRunID != "" {
			if err := t.ask(rec.ParentRunID, h.Start); err != nil {
				return nil, err
			}
		}
		if rec.Base != "" {
			if r.base, err = p.history(t, rec.Base); err != nil {
				return nil, err
			}
			r.goesOnFrom(r.base)
		}
		at, err := lineage.RestoreFrom(r.base.Unshare(), contentOf(rec))
		if err != nil {
			return nil, fmt.Errorf("loading run: %w", err)
		}
		if r.fold, err = compact.Resume(at.Messages, at.State, rec.Open.Fold); err != nil {
			return nil, fmt.Errorf("loading run: %w", err)
		}
		r.rec.Refolds, r.rec.BaseRefolds = rec.Refolds, rec.BaseRefolds
		r.rec.FoldVersion = rec.FoldVersion // the rules that it began by
		r.rec.Kept = rec.Kept               // whatever the setting is by now
		r.fold.Keep(rec.Kept)
		r.early = nil
		r.rec.Lineage, r.rec.Base = rec.Lineage, rec.Base
		r.rec.Input, r.rec.InputMessages, r.rec.InputLayout = rec.Input, rec.InputMessages, rec.InputLayout
		r.rec.InputForm, r.rec.Rewrote, r.rec.Resumes, r.rec.InputSHA256 = rec.InputForm, rec.Rewrote, rec.Resumes, rec.InputSHA256
		if err := r.show(); err != nil {
			return nil, err
		}
	}
	p.keep(r)
	return r, nil
}

// resume takes in what a record that is not sealed says of the run, but for its place and what was folded.
func (r *run) resume(rec *record.Run, size int) error {
	r.recorded, r.savedSize = true, size
	r.placed, r.shownOpen = !rec.Open.Pending || rec.Open.Placed, rec.Status == record.StatusRunning
	r.ranges, r.missing = record.NewRanges(rec.Raw.Ranges), rec.Open.MissingSeqs
	r.tally.Events, r.tally.TimeToFirstToken = rec.Raw.Events, rec.Stats.TimeToFirstToken
	r.tally.StartedAt, r.tally.EndedAt = rec.StartedAt, rec.Open.LastAt
	for _, n := range rec.Stats.EventBytes {
		r.said += n
	}
	r.rec.RawLost = rec.RawLost
	r.producer.Agent, r.producer.Labels = rec.Agent, rec.Labels
	if err := r.tally.RestoreHash(rec.Open.Hash); err != nil {
		return err
	}
	if !rec.Open.Pending {
		return nil
	}
	if rec.Stats.Anomalies != nil {
		r.early = rec.Stats.Anomalies
		r.rec.FoldVersion = rec.FoldVersion // the rules that counted them
	}
	if rec.Input == nil { // its place alone
		return nil
	}
	in, err := agui.DecodeInput(withMessages(rec.Input, rec.InputMessages), rec.RunID)
	if err != nil {
		return fmt.Errorf("loading input of run: %w", err)
	}
	r.setInput(in, rec.InputSHA256)
	return nil
}

// decidedBy is the placement that a record says alone.
func (p *Processor) decidedBy(t *thread, h *head, rec *record.Run) (*placement, error) {
	pl := &placement{baseRefolds: rec.BaseRefolds}
	pl.Run = h.Run
	pl.Run.End, pl.Run.Status, pl.Run.Synthetic = -1, lineage.StatusRunning, false
	if rec.Base == "" {
		at, err := lineage.Restore(contentOf(rec))
		pl.parent = at
		return pl, err
	}
	var err error
	pl.base, err = p.history(t, rec.Base)
	pl.parent = pl.base
	return pl, err
}

// show lets lineage see the run as it stands, once its place is decided.
func (r *run) show() error {
	switch {
	case r.fold != nil:
		return r.thread.live(r.head, r.fold.Messages)
	case r.head.Placed:
		return r.thread.live(r.head, func() []agui.Message { return r.decided.parent.Messages })
	default:
		return nil
	}
}

// withMessages puts the messages back into an input that was stored without them.
func withMessages(input json.RawMessage, messages []agui.Message) json.RawMessage {
	out := []byte(`{"messages":[`)
	for i, m := range messages {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, m.Raw...)
	}
	out = append(out, ']')
	rest := bytes.TrimSpace(bytes.TrimSpace(input)[1:])
	if rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// conversationBytes is the size of the messages as JSON, but for what joins them.
func conversationBytes(messages []agui.Message) int {
	n := 0
	for _, m := range messages {
		n += len(m.Raw)
	}
	return n
}

package shadow

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Thread folds the runs of one thread again, all of them at once: in the order of their raw records, so
// that a run starts from its parent as it stood then.
type Thread struct {
	runs  []*run // by start
	byID  map[string]*run
	spans *fold.Thread
}

// run is one run of a thread that is folded again.
type run struct {
	*fold.Run
	rec *record.Run
	// keep says why the record is not made again; what hangs from it then starts from what it says.
	keep Outcome
	why  string
	// input is as it is recorded, parent what the fold started from, base the history of the base.
	input        *agui.RunAgentInput
	parent, base lineage.History
	// first and next are the offsets of the first raw record and after the last one; -1 before it came.
	first, next int64
	made        *record.Run
	// at is the history at the end of what was made, key its name; told is that of the record. Runs that only add
	// to one another share theirs: a thread is held once, not once for each of its runs.
	at   lineage.History
	key  lineage.Key
	told *lineage.History
}

// NewThread takes the latest records of a thread's runs; start is the first offset that raw still has.
func NewThread(records []*record.Run, start int64) *Thread {
	slices.SortFunc(records, compareStart)
	t := &Thread{byID: make(map[string]*run, len(records))}
	spans := make([]fold.Span, len(records))
	for i, rec := range records {
		spans[i] = fold.SpanOf(rec)
		r := &run{Run: fold.NewRun(spans[i], rec.ThreadID), rec: rec, first: -1, next: -1}
		switch {
		case rec.RawLost:
			r.leave("events were gone before they were folded")
		case rec.Raw.First < rec.Raw.Next && (len(rec.Raw.Ranges) == 0 || rec.Raw.Ranges[0][0] < start):
			r.leave("raw events are older than skein.events keeps them")
		case rec.Status == record.StatusRunning || rec.InputOnly():
			r.keep = Open // folded all the same: others may hang from it
		}
		r.Begin = func(input *agui.RunAgentInput, _ string) (*compact.Run, error) { return t.begin(r, input) }
		t.runs, t.byID[rec.RunID] = append(t.runs, r), r
	}
	t.spans = fold.NewThread(spans)
	return t
}

func (r *run) leave(why string) { r.keep, r.why = Gone, why }

// errLeft says that a run cannot be folded again; its keep says why.
var errLeft = errors.New("the run is left as it is")

// Take takes the next raw record of the thread's key. Records that no run needs may be left out.
func (t *Thread) Take(m *kgo.Record) error {
	e, ok, err := kafka.RunEvent(m, record.Headers{})
	if !ok {
		return err
	}
	span, ok := t.spans.Of(fold.NamedBy(e.Headers, m.Value), m.Offset)
	if !ok {
		return nil
	}
	r := t.byID[span.RunID]
	if r.keep == Gone || r.keep != Open && m.Offset >= span.Next {
		return nil
	}
	if r.first < 0 {
		r.first = m.Offset
	}
	r.next = m.Offset + 1
	switch _, err := r.Take(e); {
	case errors.Is(err, errLeft):
		return nil
	case err != nil:
		return fmt.Errorf("folding run %q again at %d:%d: %w", r.rec.RunID, m.Partition, m.Offset, err)
	}
	if r.keep != Open && r.next == span.Next {
		return r.finish()
	}
	return nil
}

// begin starts a run's fold from its parent as it stands by now.
func (t *Thread) begin(r *run, input *agui.RunAgentInput) (*compact.Run, error) {
	if id := r.rec.ParentRunID; id != "" && !fold.BeganAlone(r.rec) {
		p := t.byID[id]
		switch {
		case p == nil:
			r.leave(fmt.Sprintf("its parent %q has no record", id))
			return nil, errLeft
		case (p.keep != Open || p.rec.Closed) && p.rec.Raw.Next < r.next: // closed with only an input, it is as its record says
			var err error
			if r.parent, err = t.history(p); err != nil {
				return nil, err
			}
		case p.keep == Gone || p.Fold == nil:
			r.leave(fmt.Sprintf("raw events of its parent %q, which was going on when the run started, are gone", id))
			return nil, errLeft
		default:
			r.parent = lineage.History{Messages: p.Fold.Messages(), State: p.Fold.State()}
		}
	}
	if r.rec.Base != "" {
		b := t.byID[r.rec.Base]
		if b == nil {
			r.leave(fmt.Sprintf("its base %q has no record", r.rec.Base))
			return nil, errLeft
		}
		var err error
		if r.base, err = t.history(b); err != nil {
			return nil, err
		}
		if b.stands() {
			r.BaseKey = &b.key
		}
	}
	var folded *compact.Run
	folded, r.input = fold.Begin(r.rec, r.parent, input)
	return folded, nil
}

// finish makes the run's record.
func (r *run) finish() error {
	r.made, _ = r.Record(r.rec, r.parent, r.base, r.input, r.first, r.next)
	if r.Fold != nil {
		at, err := lineage.RestoreFrom(r.base, contentOf(r.made))
		if err == nil {
			err = r.key.UnmarshalText([]byte(r.made.HistoryKey))
		}
		if err != nil {
			return fmt.Errorf("folding run %q again: %w", r.rec.RunID, err)
		}
		r.at = at.Share()
	}
	if was := r.rec.Open; was != nil && r.Fold != nil { // abandoned: a real event may yet come
		checkpoint, err := r.Fold.Checkpoint()
		if err != nil {
			return err
		}
		hash, err := r.Tally.HashState()
		if err != nil {
			return err
		}
		r.made.Open = &record.Open{Fold: checkpoint, Hash: hash, MissingSeqs: r.Seq.Missing, LastAt: was.LastAt}
	}
	r.Fold, r.Input, r.input, r.parent, r.base = nil, nil, nil, lineage.History{}, lineage.History{} // their memory
	return nil
}

func contentOf(rec *record.Run) lineage.Content {
	return lineage.Content{RunID: rec.RunID, Base: rec.Base, Messages: rec.Messages, Layout: rec.Layout, State: rec.State}
}

// stands reports whether what hangs from the run starts from what was made of it. From a record that was cut, the
// compactor too goes on from what it says.
func (r *run) stands() bool { return r.made != nil && !r.rec.Truncated }

// history is what runs that hang from a run start from: what was made of it, or what its record says
// where nothing was made.
func (t *Thread) history(r *run) (lineage.History, error) {
	if r.stands() {
		return r.at, nil
	}
	return t.recorded(r)
}

// recorded is the history that the records tell.
func (t *Thread) recorded(r *run) (lineage.History, error) {
	var chain []*run
	at := lineage.History{}.Share()
	for at := r; ; {
		chain = append(chain, at)
		if at.told != nil || at.rec.Base == "" {
			break
		}
		next := t.byID[at.rec.Base]
		if next == nil || len(chain) > len(t.runs) {
			return lineage.History{}, fmt.Errorf("restoring run %q: its base %q has no record", at.rec.RunID, at.rec.Base)
		}
		at = next
	}
	for _, r := range slices.Backward(chain) {
		if r.told == nil {
			h, err := lineage.RestoreFrom(at, contentOf(r.rec))
			if err != nil {
				return lineage.History{}, fmt.Errorf("restoring run %q: %w", r.rec.RunID, err)
			}
			h = h.Share()
			r.told = &h
		}
		at = *r.told
	}
	return at, nil
}

// Results say what came of the runs, by start, once all raw records were taken.
func (t *Thread) Results() ([]Run, error) {
	out := make([]Run, len(t.runs))
	for i, r := range t.runs {
		var err error
		if out[i], err = r.result(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// result says what came of the run.
func (r *run) result() (Run, error) {
	out := Run{
		Tenant: r.rec.Tenant, ThreadID: r.rec.ThreadID, RunID: r.rec.RunID,
		Position:    record.Position{Partition: r.rec.Raw.Partition, Offset: r.rec.Raw.First},
		FoldVersion: r.rec.FoldVersion, Outcome: r.keep, Why: r.why, Differences: []fold.Difference{},
	}
	switch {
	case r.keep == Gone && r.rec.Status == record.StatusRunning:
		out.Outcome, out.Why = Open, ""
		return out, nil
	case r.keep != "":
		return out, nil
	}
	if r.made == nil { // its last raw records are not there
		if err := r.finish(); err != nil {
			return Run{}, err
		}
	}
	all, err := fold.Differences(r.rec, r.made)
	if err != nil {
		return Run{}, err
	}
	for _, d := range all {
		if !r.rec.Truncated || proves(d.Member) {
			out.Differences = append(out.Differences, d)
		}
	}
	out.Outcome = Same
	if len(out.Differences) > 0 {
		out.Outcome = Changes
	}
	return out, nil
}

// proves says which members of a record that was cut can be compared.
func proves(member string) bool {
	switch member {
	case "raw.events", "raw.sha256", "raw.first", "raw.next", "raw.nextSeq", "inputSha256", "messageCount", "historyKey", "status", "startedAt", "endedAt":
		return true
	}
	return false
}

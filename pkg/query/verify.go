package query

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/refold"
	"github.com/skeinhq/skein/pkg/store"
)

// verdict is what comes of a proof.
type verdict string

const (
	// verdictProved: the raw events give the record again.
	verdictProved verdict = "proved"
	// verdictDiffers: they give another one.
	verdictDiffers verdict = "differs"
	// verdictUnproved: they are not there, or what they start from cannot be had.
	verdictUnproved verdict = "unproved"
)

// proofAnswer says whether a run's record is what its raw events make.
type proofAnswer struct {
	ThreadID string        `json:"threadId"`
	RunID    string        `json:"runId"`
	Status   record.Status `json:"status"`
	Verdict  verdict       `json:"verdict"`
	// Reason says why nothing is proved.
	Reason string `json:"reason,omitempty"`
	// Earliest is the first of the run's events that is still there, where the first ones are gone.
	Earliest *record.Position `json:"earliest,omitempty"`

	Record claim `json:"record"`
	// Raw is what the raw events make; absent where they are not there.
	Raw *claim `json:"raw,omitempty"`
	// Differences are the members of the record that came out otherwise.
	Differences []string `json:"differences"`
	// DiffersFrom: the first event that differs is this one or one behind it.
	DiffersFrom *record.Position `json:"differsFrom,omitempty"`
	// Unproved is what the proof does not speak of.
	Unproved []string `json:"unproved"`

	badges
	IndexedTo record.Position `json:"indexedTo"`
}

// claim is what stands for a run's events.
type claim struct {
	Events      int64  `json:"events"`
	SHA256      string `json:"sha256"`
	InputSHA256 string `json:"inputSha256,omitempty"`
}

// maxUnsealed bounds how many parents that were going on when their child started are folded for one
// proof.
const maxUnsealed = 16

// unprovable says why a proof cannot be made.
type unprovable struct{ reason string }

func (u *unprovable) Error() string { return u.reason }

// verify folds a run's raw events again and compares what comes of it with the run's record.
func (c *call) verify() error {
	v, err := c.readThread()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(v.runs, func(r store.Run) bool { return r.RunID == c.runID })
	if i < 0 {
		return store.ErrNotFound
	}
	raw, err := c.raw.open(c.r.Context(), v.indexedTo.Partition)
	if err != nil {
		return err
	}
	defer raw.close()
	a, err := newProof(c, raw, v).answer(v.runs[i])
	if err != nil {
		return err
	}
	return c.json(v.status, a)
}

// verifyThread is verify for all runs of a thread, by start, each an answer of its own on a line. What one
// run's proof lacks for now is said on its line.
func (c *call) verifyThread() error {
	v, err := c.readThread()
	if err != nil {
		return err
	}
	if v.status == http.StatusTooEarly {
		return &refusal{status: v.status, retryAfter: 1, detail: "the index has not got to atLeast yet; try again"}
	}
	raw, err := c.raw.open(c.r.Context(), v.indexedTo.Partition)
	if err != nil {
		return err
	}
	defer raw.close()
	out := newReplayWriter(c)
	out.form = typeNDJSON
	c.w.Header().Set(headerIndexedTo, v.indexedTo.String())
	out.start()
	if c.r.Method == http.MethodHead {
		return nil
	}
	p := newProof(c, raw, v)
	for _, row := range v.runs {
		if err := p.line(row, out); err != nil {
			return c.stream(err, out)
		}
	}
	return c.stream(nil, out)
}

// line writes the answer about one of many runs.
func (p *proof) line(row store.Run, out *replayWriter) error {
	a, err := p.answer(row)
	if why := new(refusal); errors.As(err, &why) {
		a, err = p.blank(row), nil
		a.Verdict, a.Reason = verdictUnproved, why.detail
	}
	if err != nil {
		return err
	}
	text, err := marshal(a)
	if err != nil {
		return err
	}
	if _, err := out.b.Write(append(text, '\n')); err != nil {
		return callers(err)
	}
	return out.flush()
}

// proof folds runs of a thread again.
type proof struct {
	*call
	raw       *rawRead
	rows      []store.Run
	thread    *refold.Thread
	placer    placer
	indexedTo record.Position
	unsealed  int // parents that were folded for one run
	// recent are histories that were restored last, or proved, by run id, and order those ids: the next run
	// mostly builds on one.
	recent map[string]lineage.History
	order  []string
}

// maxRecent bounds the histories that are at hand.
const maxRecent = 8

func newProof(c *call, raw *rawRead, v view) *proof {
	return &proof{
		call: c, raw: raw, rows: v.runs, thread: refold.NewThread(spans(v.runs)), placer: placer{rows: v.runs},
		indexedTo: v.indexedTo, recent: map[string]lineage.History{},
	}
}

// blank is the answer about a run before anything is known.
func (p *proof) blank(row store.Run) proofAnswer {
	return proofAnswer{
		ThreadID: row.ThreadID, RunID: row.RunID, Status: row.Status, Differences: []string{}, Unproved: []string{},
		Record: claim{Events: row.Raw.Events, SHA256: row.Raw.SHA256, InputSHA256: row.InputSHA256},
		badges: badgesOf(row), IndexedTo: p.indexedTo,
	}
}

// answer proves the record of a run. Of several runs it is asked in the order of their starts.
func (p *proof) answer(row store.Run) (proofAnswer, error) {
	a := p.blank(row)
	rec, err := p.recordOf(row)
	if errors.Is(err, ErrRecordGone) {
		return a, later(fmt.Sprintf("run %q goes on and has a newer record by now; try again", row.RunID))
	}
	if err != nil {
		return a, err
	}
	p.unsealed = 0
	switch why := p.prove(rec, &a); {
	case why == nil:
	case errors.As(why, new(*unprovable)):
		a.Verdict, a.Reason = verdictUnproved, why.Error()
	default:
		return a, why
	}
	return a, nil
}

// history is the history of a run as records tell it.
func (p *proof) history(id string) (lineage.History, error) {
	if h, ok := p.recent[id]; ok {
		return h, nil
	}
	h, err := p.restore(p.rows, id)
	if err != nil {
		return lineage.History{}, err
	}
	if i := slices.IndexFunc(p.rows, func(r store.Run) bool { return r.RunID == id }); p.rows[i].Version != h.run.Version {
		return lineage.History{}, later(fmt.Sprintf("run %q has a newer record by now; try again", id)) // what is proved hangs from the older one
	}
	p.keep(id, h.History)
	return h.History, nil
}

func (p *proof) keep(id string, h lineage.History) {
	if len(p.order) == maxRecent {
		delete(p.recent, p.order[0])
		p.order = p.order[1:]
	}
	p.recent[id], p.order = h, append(p.order, id)
}

// refolded is what the raw events of a run make.
type refolded struct {
	*refold.Run
	// input is as it is recorded.
	input *agui.RunAgentInput
	// parent is the history that the fold started from, base that which the record is told against.
	parent, base lineage.History
	// start is what the run was placed by.
	start lineage.Start
	// first and next are the offsets of the first record and after the last one.
	first, next int64
	traces      traces
}

func (p *proof) prove(rec *record.Run, a *proofAnswer) error {
	got, err := p.refold(rec, rec.Raw.Next)
	if errors.Is(err, errRawGone) {
		if at := p.raw.earliest(rec.Raw.Ranges); at >= 0 {
			a.Earliest = &record.Position{Partition: rec.Raw.Partition, Offset: at}
		}
		return &unprovable{"the raw events are gone: they are older than skein.events keeps them"}
	}
	if err != nil {
		return err
	}
	a.Raw = &claim{Events: got.Tally.Events, SHA256: got.Tally.SHA256(), InputSHA256: got.InputSHA256}
	made, at := got.Record(rec, got.parent, got.base, got.input, got.first, got.next)
	differences, err := refold.Differences(rec, made)
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	a.Unproved = unprovedOf(rec)
	if got.Fold != nil {
		names, provable, err := p.placer.differences(rec, got.start)
		if err != nil {
			return err
		}
		if !provable {
			a.Unproved = append(a.Unproved, unprovedPlace)
		}
		a.Differences = append(a.Differences, names...)
	}
	skip := uncompared(rec)
	for _, d := range differences {
		if !skip(d.Member) {
			a.Differences = append(a.Differences, d.Member)
		}
	}
	a.Verdict = verdictProved
	if len(a.Differences) > 0 {
		a.Verdict = verdictDiffers
		a.DiffersFrom = &record.Position{Partition: rec.Raw.Partition, Offset: got.traces.first(rec, got, a.Differences)}
	} else if rec.Status.Sealed() && len(a.Unproved) == 0 {
		p.keep(rec.RunID, at) // the record says the same
	}
	return nil
}

// refold folds the events of a run below an offset.
func (p *proof) refold(rec *record.Run, below int64) (*refolded, error) {
	var ranges [][2]int64
	for _, part := range rec.Raw.Ranges {
		if part[1] = min(part[1], below); part[0] < part[1] {
			ranges = append(ranges, part)
		}
	}
	if len(ranges) > 0 && (ranges[0][0] < p.raw.start || ranges[len(ranges)-1][1] > p.raw.end) {
		return nil, errRawGone
	}
	key, err := record.ThreadKey(p.tenant, p.threadID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	got := &refolded{Run: refold.NewRun(refold.SpanOf(rec), p.threadID), first: rec.Raw.First, next: rec.Raw.First, traces: newTraces()}
	if rec.Base != "" {
		var err error
		if got.base, err = p.history(rec.Base); err != nil {
			return nil, err
		}
	}
	var at int64
	var first []byte // the event that Begin is called at
	got.Begin = func(input *agui.RunAgentInput, _ string) (*compact.Run, error) {
		var err error
		if got.parent, err = p.parent(rec, got.base, at); err != nil {
			return nil, err
		}
		got.start = startOf(rec, first, input, at)
		var fold *compact.Run
		fold, got.input = refold.Begin(rec, got.parent, input)
		return fold, nil
	}
	seen := false
	err = p.raw.each(p.r.Context(), ranges, func(m *kgo.Record) error {
		if string(m.Key) != key || m.Offset >= below {
			return nil
		}
		headers, ok := kafka.OfRun(m)
		if !ok {
			return nil
		}
		span, ok := p.thread.Of(refold.NamedBy(headers, m.Value), m.Offset)
		if !ok || span.RunID != rec.RunID || m.Offset >= span.Next {
			return nil
		}
		if !seen {
			got.first, seen = m.Offset, true
		}
		at, first, got.next = m.Offset, m.Value, m.Offset+1
		outcome, err := got.Take(refold.Message{Offset: m.Offset, At: m.Timestamp, Headers: headers, Value: m.Value})
		if err == nil && outcome == refold.Folded {
			got.traces.note(m.Offset, m.Value, got.Fold)
		}
		return err
	})
	return got, err
}

// parent is the history that a run's fold started from: its parent's, as it was at the run's first event.
func (p *proof) parent(rec *record.Run, base lineage.History, offset int64) (lineage.History, error) {
	if rec.ParentRunID == "" || rec.Base == rec.ParentRunID || refold.BeganAlone(rec) {
		return base, nil
	}
	i := slices.IndexFunc(p.rows, func(r store.Run) bool { return r.RunID == rec.ParentRunID })
	if i < 0 {
		return lineage.History{}, later(fmt.Sprintf("run %q is indexed in part; try again", rec.ParentRunID))
	}
	if p.rows[i].Status == record.StatusRunning && p.rows[i].InputOnly() {
		return lineage.History{}, &unprovable{fmt.Sprintf("its parent %q is going on, and its record holds none of its events yet", rec.ParentRunID)}
	}
	if row := p.rows[i]; row.Raw.Next > offset { // it went on: its record says how it stood later
		if p.unsealed++; p.unsealed > maxUnsealed {
			return lineage.History{}, &unprovable{fmt.Sprintf("more than %d parents were going on when their children started", maxUnsealed)}
		}
		got, err := p.refold(&row.Run, offset)
		if errors.Is(err, errRawGone) {
			return lineage.History{}, &unprovable{fmt.Sprintf("the raw events of its parent %q, which was going on when the run started, are gone", row.RunID)}
		}
		if err != nil {
			return lineage.History{}, err
		}
		if got.Fold == nil {
			return lineage.History{}, &unprovable{fmt.Sprintf("its parent %q had no event when the run started", row.RunID)}
		}
		return lineage.History{Messages: got.Fold.Messages(), State: got.Fold.State()}, nil
	}
	return p.history(rec.ParentRunID)
}

// record is the run record that the raw events make, where the given one is right about the run's place.
func (g *refolded) record(given *record.Run) *record.Run {
	made, _ := g.Record(given, g.parent, g.base, g.input, g.first, g.next)
	return made
}

// unprovedOf says what the proof of a record does not speak of.
func unprovedOf(r *record.Run) []string {
	out := []string{}
	if r.Synthetic {
		out = append(out, "the end: Skein made it, as the agent had fallen silent; it is in no hash")
	}
	if r.Status == record.StatusRunning {
		out = append(out, "what came after the latest record: the run is open")
	}
	if r.InputOnly() {
		out = append(out, "the contents: no event has come")
	}
	if r.Truncated {
		out = append(out, "contents: those above the record limit were cut; hashes and counts speak for them")
	}
	if r.RawLost {
		out = append(out, "the events that were gone before they were folded")
	}
	if r.FoldVersion != compact.Version {
		out = append(out, fmt.Sprintf("contents: they were folded by version %d of the rules, this is %d", r.FoldVersion, compact.Version))
	}
	return out
}

// uncompared says which members of a record cannot be held against what its raw events make.
func uncompared(r *record.Run) func(name string) bool {
	pending := r.InputOnly()
	if !pending && !r.Truncated && r.FoldVersion == compact.Version {
		return func(string) bool { return false }
	}
	return func(name string) bool {
		switch {
		case strings.HasPrefix(name, "raw."), name == "inputSha256":
			return false
		case name == "messageCount", name == "historyKey", name == "status", name == "startedAt", name == "endedAt":
			return pending || r.FoldVersion != compact.Version
		default:
			return true
		}
	}
}

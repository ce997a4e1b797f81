package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Verdict is what comes of a proof.
type Verdict string

// The verdicts.
const (
	// Proved: the raw events give the record again.
	Proved Verdict = "proved"
	// Differs: they give another one.
	Differs Verdict = "differs"
	// Unproved: they are not there, or what they start from cannot be had.
	Unproved Verdict = "unproved"
)

// UnprovedAlone says that a run is taken to have begun without what its parent had said (lineage.AnomalyPlacedAlone).
const UnprovedAlone = "the beginning: that there was no room for what the parent had said, as the record says, and no record tells how much there was"

// UnprovedPlace says that a run's place is not part of its proof.
const UnprovedPlace = "lineage: parent, branch and base are taken as the record says, as no record tells how those runs stood that were going on when this one began"

// Proof says whether a run's record is what its raw events make.
type Proof struct {
	RunID   string
	Verdict Verdict
	// Reason says why nothing is proved. Where raw events of the run itself are gone, Earliest is the first that is still there; else, or
	// where none is, it is -1.
	Reason   string
	Earliest int64
	// Raw is what the raw events make; nil where they are not there.
	Raw *Claim
	// Differences are the members of the record that came out otherwise, From the first event that differs, or one before it.
	Differences []string
	From        int64
	// Unproved is what the proof does not speak of.
	Unproved []string
}

// Claim is what stands for a run's events.
type Claim struct {
	Events              int64
	SHA256, InputSHA256 string
}

// Source gives what the records say of a thread's runs, one by one. Where it does not have one any more, or not yet, the error
// is an *UnprovableError.
type Source interface {
	// Record returns the record of a run, whole.
	Record(run string) (*record.Run, error)
	// History returns the history at the end of a run.
	History(run string) (lineage.History, error)
	// Holding returns the runs, sealed or abandoned, whose records have a message of one of these ids as their own.
	Holding(messageIDs []string) (runs []string, err error)
}

// UnprovableError says why a proof cannot be made.
type UnprovableError struct{ Reason string }

func (u *UnprovableError) Error() string { return u.Reason }

// unprovable tells why a proof cannot be made from what else went wrong.
func unprovable(err error) (why string, other error) {
	if u := new(UnprovableError); errors.As(err, &u) {
		return u.Reason, nil
	}
	return "", err
}

// maxUnsealed bounds how many parents that were going on when their child started are folded for one
// proof.
const maxUnsealed = 16

// maxRecent bounds the histories that are at hand of a thread.
const maxRecent = 8

// Verifier folds runs of one thread again, side by side in the order of their raw records, and holds what they make against
// their records. Unlike Thread, which follows a change along the thread, it takes each record for itself: a run starts
// from what the records say of those before it.
type Verifier struct {
	key    string
	source Source
	spans  *fold.Thread
	placer *placer
	heads  map[string]*record.Run
	// runs are those whose events are read, wanted those that are asked for, by start.
	runs   map[string]*proof
	wanted []*proof
	like   record.Headers
	// recent are histories that were asked for last, or proved, by run, and order those runs: the next one mostly goes on
	// from one of them.
	recent map[string]named
	order  []string
}

// named is a history and its key.
type named struct {
	lineage.History
	key lineage.Key
}

// proof is one run that is folded again.
type proof struct {
	*fold.Run
	// head is the run's record, perhaps without its contents.
	head *record.Run
	// until: the run's records below this offset are read.
	until  int64
	wanted bool
	// needs is a run from which this one may start as it stands then, children how many such there are that have to begin yet.
	needs    *proof
	children int
	// failed says why the run cannot be folded, or its record not be had. Gone: its raw events are not there.
	failed, unread string
	gone           bool
	earliest       int64

	input        *agui.RunAgentInput
	parent, base lineage.History
	first, next  int64
	seen         coverage
	traces       traces

	// at is the run's place as it is decided again, where certain says so, and misplaced what the record says otherwise.
	at        lineage.Run
	certain   bool
	misplaced []string
	begun     bool
	// late: a record of the run has come behind the end that its own tells of, which is not for good.
	late bool
	// compared: what the raw records below the head's end make was held against the record, and comes out otherwise in differ,
	// from that offset on.
	compared bool
	raw      Claim
	differ   []string
	from     int64
}

// preliminary reports whether the record says where the run would be if its first event came now.
func (p *proof) preliminary() bool {
	return p.head.InputOnly() && !(p.head.Open != nil && p.head.Open.Placed)
}

// coverage tells whether ranges of offsets are those of a run's records: all lie in one, and each begins and ends with one.
type coverage struct {
	ranges [][2]int64
	last   int64
	bad    bool
}

func (c *coverage) see(offset int64) {
	for len(c.ranges) > 0 && offset >= c.ranges[0][1] {
		c.bad = c.bad || c.last != c.ranges[0][1]-1
		c.ranges = c.ranges[1:]
	}
	c.bad = c.bad || len(c.ranges) == 0 || offset < c.ranges[0][0] || c.last < c.ranges[0][0] && offset != c.ranges[0][0]
	c.last = offset
}

func (c *coverage) whole() bool {
	return !c.bad && (len(c.ranges) == 0 || len(c.ranges) == 1 && c.last == c.ranges[0][1]-1)
}

// NewVerifier takes all runs of a thread (their records, which may lack contents and what a fold goes on from), and those
// that are to be verified. Held is what skein.events has of the thread's partition. The records in Ranges are to be taken, and others
// may be; where wanted is nil, which is all runs, all records of the thread in Held are to be taken.
func NewVerifier(heads []*record.Run, wanted []string, held kafka.Span, source Source) (*Verifier, error) {
	key, err := record.ThreadKey(heads[0].Tenant, heads[0].ThreadID)
	if err != nil {
		return nil, fmt.Errorf("verifying a thread: %w", err)
	}
	v := &Verifier{
		key: key, source: source, heads: make(map[string]*record.Run, len(heads)), runs: map[string]*proof{}, recent: map[string]named{},
	}
	spans := make([]fold.Span, len(heads))
	for i, h := range heads {
		spans[i], v.heads[h.RunID] = fold.SpanOf(h), h
	}
	v.spans = fold.NewThread(spans)
	for _, h := range heads {
		if wanted == nil || slices.Contains(wanted, h.RunID) {
			p := v.add(h, held)
			p.wanted = true
			if wanted == nil && h.Status == record.StatusRunning {
				p.until = max(p.until, held.End)
			}
			v.wanted = append(v.wanted, p)
		}
	}
	slices.SortStableFunc(v.wanted, func(a, b *proof) int { return compareStart(a.head, b.head) })
	for _, p := range v.wanted {
		v.addParents(p, held)
	}
	v.placer, err = newPlacer(heads, wanted == nil, source, func(run string) *proof {
		if p := v.runs[run]; p != nil && p.failed == "" {
			return p
		}
		return nil
	})
	return v, err
}

// add has a run folded.
func (v *Verifier) add(h *record.Run, held kafka.Span) *proof {
	if p := v.runs[h.RunID]; p != nil {
		return p
	}
	p := &proof{
		Run: fold.NewRun(fold.SpanOf(h), h.ThreadID), head: h, until: h.Raw.Next,
		first: h.Raw.First, next: h.Raw.First, seen: coverage{ranges: h.Raw.Ranges, last: -1}, from: h.Raw.First, earliest: -1,
	}
	if n := len(h.Raw.Ranges); n > 0 && (h.Raw.Ranges[0][0] < held.Start || h.Raw.Ranges[n-1][1] > held.End) {
		p.failed, p.gone = "the raw events are gone: they are older than skein.events keeps them", true
		p.earliest = earliest(h.Raw.Ranges, held)
	}
	p.Begin = func(input *agui.RunAgentInput, _ string) (*compact.Run, error) { return v.begin(p, input) }
	v.runs[h.RunID] = p
	return p
}

// earliest returns the first offset of ranges that is still there; -1 where there is none.
func earliest(ranges [][2]int64, held kafka.Span) int64 {
	for _, r := range ranges {
		if at := max(r[0], held.Start); at < min(r[1], held.End) {
			return at
		}
	}
	return -1
}

// addParents has those folded as well that a run may start from as they stood then.
func (v *Verifier) addParents(p *proof, held kafka.Span) {
	for n, child := 0, p; ; n++ {
		parent := v.heads[child.head.ParentRunID]
		if parent == nil || child.needs != nil || child.head.Base != "" || fold.BeganAlone(child.head) || parent.Raw.Next <= child.head.Raw.First && parent.Status != record.StatusRunning {
			return
		}
		if n == maxUnsealed {
			p.failed = fmt.Sprintf("more than %d parents were going on when their children started", maxUnsealed)
			return
		}
		next := v.add(parent, held)
		child.needs = next
		next.children++
		if parent.Status == record.StatusRunning {
			next.until = max(next.until, child.head.Raw.Next)
		}
		child = next
	}
}

// Ranges are the offsets whose records are to be taken, rising and disjoint.
func (v *Verifier) Ranges() [][2]int64 {
	var all [][2]int64
	for _, p := range v.runs {
		if p.failed != "" {
			continue
		}
		all = append(all, p.head.Raw.Ranges...)
		if p.until > p.head.Raw.Next {
			all = append(all, [2]int64{p.head.Raw.Next, p.until})
		}
	}
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var out [][2]int64
	for _, r := range all {
		if n := len(out); n > 0 && r[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else if r[0] < r[1] {
			out = append(out, r)
		}
	}
	return out
}

// Take takes the next raw record of the partition; those of other threads, and of runs that are not folded, are passed over.
func (v *Verifier) Take(m *kgo.Record) error {
	if string(m.Key) != v.key {
		return nil
	}
	e, ok, err := kafka.RunEvent(m, v.like)
	if !ok {
		return err
	}
	v.like = e.Headers
	span, ok := v.spans.Of(fold.NamedBy(e.Headers, m.Value), m.Offset)
	if !ok {
		return nil
	}
	p := v.runs[span.RunID]
	if p == nil || p.failed != "" || !p.wanted && p.children == 0 {
		return nil
	}
	if p.head.RawLost && m.Offset < span.Next && !within(p.head.Raw.Ranges, m.Offset) { // passed over when it was folded
		return nil
	}
	if m.Offset >= span.Next {
		if err := v.compare(p); err != nil || fold.Final(p.head) {
			return err
		}
		if p.head.Status != record.StatusRunning { // it was given up, and its record does not say yet what has come since
			p.late = true
			return v.placer.hide(p.head, stands{open: true})
		}
	} else {
		if p.seen.last < 0 {
			p.first = m.Offset
		}
		p.seen.see(m.Offset)
	}
	p.next = m.Offset + 1
	outcome, err := p.Take(e)
	why, err := unprovable(err)
	if err != nil {
		return fmt.Errorf("verifying run %q at %d:%d: %w", p.head.RunID, m.Partition, m.Offset, err)
	}
	if p.failed = why; why != "" { // what it starts from cannot be had
		return v.placer.hide(p.head, stands{open: true, maybe: true})
	}
	if outcome == fold.Folded || outcome == fold.SyntheticEnd {
		if !p.begun {
			p.begun, p.traces = true, newTraces()
			if err := v.begun(p); err != nil {
				return err
			}
		}
		if p.wanted && !p.compared {
			p.traces.note(m.Offset, p.Event(), p.head.Kept)
		}
	}
	if p.next == span.Next {
		return v.compare(p)
	}
	return nil
}

func within(ranges [][2]int64, offset int64) bool {
	return slices.ContainsFunc(ranges, func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

// begin starts a run's fold at what may be its first event, and places the run.
func (v *Verifier) begin(p *proof, input *agui.RunAgentInput) (*compact.Run, error) {
	rec, at := p.head, p.next-1
	var err error
	if rec.Base != "" {
		base, err := v.history(rec.Base)
		if err != nil {
			return nil, err
		}
		p.base, p.BaseKey = base.History, &base.key
	}
	if p.parent, err = v.parent(p, at); err != nil {
		return nil, err
	}
	start := lineage.Start{RunID: rec.RunID, GivenID: p.Span.Given, Input: input, Offset: at}
	if ev := p.Event(); ev.Type == agui.RunStarted {
		start.ParentRunID = ev.ParentRunID
	}
	if start.ParentRunID == "" && input != nil {
		start.ParentRunID = input.ParentRunID
	}
	if p.at, p.misplaced, p.certain, err = v.placer.place(p, start); err != nil {
		return nil, err
	}
	var folded *compact.Run
	folded, p.input = fold.Begin(rec, p.parent, input)
	return folded, nil
}

// begun notes that a run has begun: from here on others may go on from it, and it needs its parent no more.
func (v *Verifier) begun(p *proof) error {
	if err := v.placer.begin(p); err != nil {
		return err
	}
	parent := p.needs
	if parent == nil {
		return nil
	}
	p.needs = nil
	if parent.children--; parent.children > 0 || parent.wanted || parent.Fold == nil {
		return nil
	}
	parent.free()
	return v.placer.hide(parent.head, stands{open: true})
}

// free lets go of what a fold holds.
func (p *proof) free() {
	p.Fold, p.Input, p.input, p.parent, p.base, p.BaseKey = nil, nil, nil, lineage.History{}, lineage.History{}, nil
}

// parent is the history that a run's fold starts from: its parent's, as it was at an offset.
func (v *Verifier) parent(p *proof, at int64) (lineage.History, error) {
	rec := p.head
	if rec.ParentRunID == "" || rec.Base == rec.ParentRunID || fold.BeganAlone(rec) {
		return p.base, nil
	}
	head, live := v.heads[rec.ParentRunID], v.runs[rec.ParentRunID]
	switch {
	case head == nil:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q has no record, or none yet", rec.ParentRunID)}
	case live != nil && live.late:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q had gone on when the run started, and its record does not say so yet", rec.ParentRunID)}
	case head.Raw.Next <= at && head.Status != record.StatusRunning:
		h, err := v.history(rec.ParentRunID)
		return h.History, err
	case live != nil && live.gone:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("the raw events of its parent %q, which was going on when the run started, are gone", rec.ParentRunID)}
	case live == nil || live.failed != "":
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q, which was going on when the run started, cannot be folded again", rec.ParentRunID)}
	case live.Fold == nil:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q had no event when the run started", rec.ParentRunID)}
	}
	return lineage.History{Messages: live.Fold.Messages(), State: live.Fold.State()}, nil
}

// history returns the history at a run's end, as records tell it.
func (v *Verifier) history(run string) (named, error) {
	if h, ok := v.recent[run]; ok {
		return h, nil
	}
	at, err := v.source.History(run)
	if err != nil {
		return named{}, err
	}
	h := named{at, lineage.KeyOf(at.Messages)}
	v.keep(run, h)
	return h, nil
}

func (v *Verifier) keep(run string, h named) {
	if _, ok := v.recent[run]; !ok {
		if len(v.order) == maxRecent {
			delete(v.recent, v.order[0])
			v.order = v.order[1:]
		}
		v.order = append(v.order, run)
	}
	h.History = h.Share()
	v.recent[run] = h
}

// compare holds what was made of a run so far against its record, once.
func (v *Verifier) compare(p *proof) error {
	if p.compared || p.failed != "" {
		return nil
	}
	p.compared = true
	if !p.wanted {
		return nil
	}
	rec, err := v.source.Record(p.head.RunID)
	if p.unread, err = unprovable(err); p.unread != "" || err != nil {
		return err
	}
	p.raw = Claim{Events: p.Tally.Events, SHA256: p.Tally.SHA256(), InputSHA256: p.InputSHA256}
	made, at := p.Record(rec, p.parent, p.base, p.input, p.first, p.next)
	all, err := fold.Differences(rec, made)
	if err != nil {
		return fmt.Errorf("verifying run %q: %w", p.head.RunID, err)
	}
	skip := uncompared(rec)
	for _, d := range all {
		if !skip(d.Member) {
			p.differ = append(p.differ, d.Member)
		}
	}
	if !p.seen.whole() {
		p.differ = append(p.differ, "raw.ranges")
	}
	if len(p.differ) > 0 {
		p.from = p.traces.first(rec, made, p.differ)
	} else if p.Fold != nil && rec.Status.Sealed() && len(unprovedOf(rec)) == 0 { // the record says the same
		h := named{History: at}
		if err := h.key.UnmarshalText([]byte(made.HistoryKey)); err != nil {
			return fmt.Errorf("verifying run %q: %w", p.head.RunID, err)
		}
		v.keep(p.head.RunID, h)
	}
	p.traces = traces{}
	if rec.Status != record.StatusRunning {
		p.free()
	}
	return nil
}

// Proofs says what came of the runs that were to be verified, by start, once all records were taken.
func (v *Verifier) Proofs() ([]Proof, error) {
	proofs := make([]Proof, 0, len(v.wanted))
	for _, p := range v.wanted {
		if err := v.compare(p); err != nil {
			return nil, err
		}
		proofs = append(proofs, p.proof())
	}
	return proofs, nil
}

func (p *proof) proof() Proof {
	out := Proof{RunID: p.head.RunID, Verdict: Unproved, Earliest: p.earliest, Differences: []string{}, Unproved: []string{}}
	if out.Reason = cmp.Or(p.failed, p.unread); out.Reason != "" {
		return out
	}
	out.Raw, out.Unproved = &p.raw, unprovedOf(p.head)
	switch {
	case p.preliminary():
		out.Unproved = append(out.Unproved, unprovedPending)
	case !p.begun: // no event of it is there, which differs
	case !p.certain:
		out.Unproved = append(out.Unproved, UnprovedPlace)
	default:
		out.Differences = append(out.Differences, p.misplaced...)
	}
	for _, name := range p.differ {
		if !slices.Contains(out.Differences, name) {
			out.Differences = append(out.Differences, name)
		}
	}
	out.Verdict, out.From = Proved, p.from
	switch {
	case len(out.Differences) == 0:
	case p.head.RawLost && len(p.head.Raw.Ranges) == record.MaxRanges:
		// What nobody has folded may be there all the same, between two parts of one range.
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "events were passed over when it was folded, and its ranges do not say which"
	default:
		out.Verdict = Differs
	}
	return out
}

// unprovedPending says that a run's place is not decided.
const unprovedPending = "lineage: no event has come that would decide it"

// unprovedOf says what the proof of a record does not speak of, its place aside.
func unprovedOf(r *record.Run) []string {
	out := []string{}
	if r.Status == record.StatusAbandoned {
		out = append(out, "the end: Skein made it, as the agent had fallen silent; it is in no hash")
	}
	if r.Status == record.StatusRunning {
		out = append(out, "what came after the latest record: the run is open")
	}
	if r.InputOnly() {
		out = append(out, "the contents: no event has come")
	}
	if fold.BeganAlone(r) {
		out = append(out, UnprovedAlone)
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

package verify

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Verdict is what verifying a run came to.
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

// UnprovedPlace says that the parent resolution of a run was not compared.
const UnprovedPlace = "lineage: parent, branch and base are taken as the record says, as no record tells how those runs stood that were going on when this one began"

// Report says whether a run's record is what its raw events make.
type Report struct {
	RunID   string
	Verdict Verdict
	// Reason says why nothing is proved. Where raw events of the run itself are gone, Earliest is the first that is still there; else, or
	// where none is, it is -1.
	Reason   string
	Earliest int64
	// Raw is what the raw events make; nil where they are not there.
	Raw *Digest
	// Differences are the members of the record that came out otherwise, From the first event that differs, or one before it.
	Differences []string
	From        int64
	// Unproved is what was not compared.
	Unproved []string
}

// Digest stands for a run's events.
type Digest struct {
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

// UnprovableError says why a run cannot be verified.
type UnprovableError struct{ Reason string }

func (u *UnprovableError) Error() string { return u.Reason }

// unprovable tells why a run cannot be verified from what else went wrong.
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

// Thread folds runs of one thread again, side by side in the order of their raw records, and compares what they make with
// their records. Unlike a Rewriter, which follows a change along the thread, it takes each record for itself: a run starts
// from what the records say of those before it.
type Thread struct {
	loop       *fold.Loop
	source     Source
	recorded   *fold.Recorded
	resolution *resolutionCheck
	records    map[string]*record.Run
	// runs are those whose events are read, wanted those that are asked for, by start.
	runs    map[string]*threadRun
	wanted  []*threadRun
	current *threadRun // the run of the last record
	// recent are histories that were asked for last, or proved, by run, and order those runs: the next one mostly goes on
	// from one of them.
	recent map[string]keyedHistory
	order  []string
}

// keyedHistory is a history and its key.
type keyedHistory struct {
	lineage.History
	key lineage.Key
}

// threadRun is one run of a Thread. Its rec may lack contents.
type threadRun struct {
	run
	// until: the run's records below this offset are read.
	until  int64
	wanted bool
	// needs is a run from which this one may start as it stands then, children how many such there are that have to begin yet.
	needs    *threadRun
	children int
	// failed says why the run cannot be folded, unread why its record cannot be had. Gone: its raw events are not there.
	failed, unread string
	gone           bool
	earliest       int64

	seen  coverage
	trace trace

	// resolved is where the run stands as it is decided again, if certain, and misplaced what the record says otherwise.
	resolved  lineage.Run
	certain   bool
	misplaced []string
	begun     bool
	// late: a record of the run has come behind the end that its own tells of, which is not for good.
	late bool
	// compared: what the raw records below the record's end make was compared with the record, and comes out otherwise in differ,
	// from that offset on.
	compared bool
	digest   Digest
	differ   []string
	diverges int64
}

// preliminary reports whether the record says where the run would be if its first event came now.
func (p *threadRun) preliminary() bool {
	return p.rec.InputOnly() && !(p.rec.Open != nil && p.rec.Open.Placed)
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

// NewThread takes all runs of a thread (their records, which may lack contents and what a fold goes on from), and those
// that are to be verified. Held is the range of offsets that skein.events has of the thread's partition. The records in Ranges are to be
// taken, and others may be; where wanted is nil, which is all runs, all records of the thread in held are to be taken.
func NewThread(records []*record.Run, wanted []string, held [2]int64, source Source) (*Thread, error) {
	t := &Thread{
		source: source, recorded: fold.NewRecorded(records), records: make(map[string]*record.Run, len(records)),
		runs: map[string]*threadRun{}, recent: map[string]keyedHistory{},
	}
	t.loop = fold.NewLoop(t)
	for _, rec := range records {
		t.records[rec.RunID] = rec
	}
	for _, rec := range records {
		if wanted == nil || slices.Contains(wanted, rec.RunID) {
			p := t.add(rec, held)
			p.wanted = true
			if wanted == nil && rec.Status == record.StatusRunning {
				p.until = max(p.until, held[1])
			}
			t.wanted = append(t.wanted, p)
		}
	}
	slices.SortStableFunc(t.wanted, func(a, b *threadRun) int { return compareStart(a.rec, b.rec) })
	for _, p := range t.wanted {
		t.addParents(p, held)
	}
	var err error
	t.resolution, err = newResolutionCheck(records, wanted == nil, source, func(run string) *threadRun {
		if p := t.runs[run]; p != nil && p.failed == "" {
			return p
		}
		return nil
	})
	return t, err
}

// add has a run folded.
func (t *Thread) add(rec *record.Run, held [2]int64) *threadRun {
	if p := t.runs[rec.RunID]; p != nil {
		return p
	}
	p := &threadRun{
		run: newRun(rec), until: rec.Raw.Next, seen: coverage{ranges: rec.Raw.Ranges, last: -1}, diverges: rec.Raw.First, earliest: -1,
	}
	p.first, p.next = rec.Raw.First, rec.Raw.First
	if n := len(rec.Raw.Ranges); n > 0 && (rec.Raw.Ranges[0][0] < held[0] || rec.Raw.Ranges[n-1][1] > held[1]) {
		p.failed, p.gone = "the raw events are gone: they are older than skein.events keeps them", true
		p.earliest = earliest(rec.Raw.Ranges, held)
	}
	t.runs[rec.RunID] = p
	return p
}

// earliest returns the first offset of ranges that is still there; -1 where there is none.
func earliest(ranges [][2]int64, held [2]int64) int64 {
	for _, r := range ranges {
		if at := max(r[0], held[0]); at < min(r[1], held[1]) {
			return at
		}
	}
	return -1
}

// addParents has those folded as well that a run may start from as they stood then.
func (t *Thread) addParents(p *threadRun, held [2]int64) {
	for n, child := 0, p; ; n++ {
		parent := t.records[child.rec.ParentRunID]
		if parent == nil || child.needs != nil || !fold.StartsBeside(child.rec, parent) {
			return
		}
		if n == maxUnsealed {
			p.failed = fmt.Sprintf("more than %d parents were going on when their children started", maxUnsealed)
			return
		}
		next := t.add(parent, held)
		child.needs = next
		next.children++
		if parent.Status == record.StatusRunning {
			next.until = max(next.until, child.rec.Raw.Next)
		}
		child = next
	}
}

// Ranges are the offsets whose records are to be taken, rising and disjoint.
func (t *Thread) Ranges() [][2]int64 {
	var all [][2]int64
	for _, p := range t.runs {
		if p.failed != "" {
			continue
		}
		all = append(all, p.rec.Raw.Ranges...)
		if p.until > p.rec.Raw.Next {
			all = append(all, [2]int64{p.rec.Raw.Next, p.until})
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

// Take takes the next raw record of the thread's key; those of runs that are not folded are passed over.
func (t *Thread) Take(e record.Event) error {
	taken, outcome, err := t.loop.Next(e)
	if taken == nil && err == nil {
		return nil
	}
	p := t.current
	reason, err := unprovable(err)
	if err != nil {
		return fmt.Errorf("verifying run %q at %s: %w", p.ID, e.Position(), err)
	}
	if p.failed = reason; reason != "" { // what it starts from cannot be had
		return t.resolution.hide(p.rec, stands{open: true, maybe: true})
	}
	if outcome == fold.Folded || outcome == fold.SyntheticEnd {
		if !p.begun {
			p.begun, p.trace = true, newTrace()
			if err := t.begun(p); err != nil {
				return err
			}
		}
		if p.wanted && !p.compared {
			p.trace.note(e.Offset, t.loop.Decoded().Payload(), p.rec.Kept)
		}
	}
	if p.next == p.rec.Raw.Next {
		return t.compare(p)
	}
	return nil
}

// Headers are those of the record that was taken last, which the next one is likely to repeat (record.ParseHeadersLike).
func (t *Thread) Headers() record.Headers { return t.loop.Decoded().Headers }

// Find implements fold.Runs.
func (t *Thread) Find(d *fold.Decoded) (*fold.Run, fold.Outcome, error) {
	span, ok := t.recorded.Of(d)
	if !ok {
		return nil, "", nil
	}
	p := t.runs[span.RunID]
	if p == nil || p.failed != "" || !p.wanted && p.children == 0 {
		return nil, "", nil
	}
	if p.rec.RawLost && d.Offset < span.Next && !within(p.rec.Raw.Ranges, d.Offset) { // passed over when it was folded
		return nil, "", nil
	}
	t.current = p
	if d.Offset >= span.Next {
		if err := t.compare(p); err != nil || span.Sealed {
			return nil, "", err
		}
		if p.rec.Status != record.StatusRunning { // it was given up, and its record does not say yet what has come since
			p.late = true
			return nil, "", t.resolution.hide(p.rec, stands{open: true})
		}
	} else {
		if p.seen.last < 0 {
			p.first = d.Offset
		}
		p.seen.see(d.Offset)
	}
	p.next = d.Offset + 1
	return p.Run, "", nil
}

func within(ranges [][2]int64, offset int64) bool {
	return slices.ContainsFunc(ranges, func(r [2]int64) bool { return r[0] <= offset && offset < r[1] })
}

// Begin implements fold.Runs: the run starts from what records say of its parent, and its parent is resolved again.
func (t *Thread) Begin(_ *fold.Run, first *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	p, rec := t.current, t.current.rec
	var err error
	if rec.Base != "" {
		base, err := t.history(rec.Base)
		if err != nil {
			return nil, err
		}
		p.from.Base, p.from.BaseKey = base.History, &base.key
	}
	if p.from.Parent, err = t.parent(p, first.Offset); err != nil {
		return nil, err
	}
	start := lineage.Start{RunID: p.ID, ClientID: p.ClientID, Input: input, Offset: first.Offset}
	if ev := first.Payload(); ev.Type == agui.RunStarted {
		start.ParentRunID = ev.ParentRunID
	}
	if start.ParentRunID == "" && input != nil {
		start.ParentRunID = input.ParentRunID
	}
	if p.resolved, p.misplaced, p.certain, err = t.resolution.check(p, start); err != nil {
		return nil, err
	}
	return fold.StartRecorded(rec, &p.from, input), nil
}

// begun notes that a run has begun: from here on others may go on from it, and it needs its parent no more.
func (t *Thread) begun(p *threadRun) error {
	if err := t.resolution.begin(p); err != nil {
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
	return t.resolution.hide(parent.rec, stands{open: true})
}

// parent is the history that a run's fold starts from: its parent's, as it was at an offset.
func (t *Thread) parent(p *threadRun, at int64) (lineage.History, error) {
	rec := p.rec
	if rec.ParentRunID == "" || rec.Base == rec.ParentRunID || fold.StartedAlone(rec) {
		return p.from.Base, nil
	}
	head, live := t.records[rec.ParentRunID], t.runs[rec.ParentRunID]
	switch {
	case head == nil:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q has no record, or none yet", rec.ParentRunID)}
	case live != nil && live.late:
		return lineage.History{}, &UnprovableError{fmt.Sprintf("its parent %q had gone on when the run started, and its record does not say so yet", rec.ParentRunID)}
	case head.Raw.Next <= at && head.Status != record.StatusRunning:
		h, err := t.history(rec.ParentRunID)
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
func (t *Thread) history(run string) (keyedHistory, error) {
	if h, ok := t.recent[run]; ok {
		return h, nil
	}
	at, err := t.source.History(run)
	if err != nil {
		return keyedHistory{}, err
	}
	h := keyedHistory{at, lineage.KeyOf(at.Messages)}
	t.keep(run, h)
	return h, nil
}

func (t *Thread) keep(run string, h keyedHistory) {
	if _, ok := t.recent[run]; !ok {
		if len(t.order) == maxRecent {
			delete(t.recent, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, run)
	}
	h.History = h.Share()
	t.recent[run] = h
}

// compare holds what was made of a run so far against its record, once.
func (t *Thread) compare(p *threadRun) error {
	if p.compared || p.failed != "" {
		return nil
	}
	p.compared = true
	if !p.wanted {
		return nil
	}
	rec, err := t.source.Record(p.ID)
	if p.unread, err = unprovable(err); p.unread != "" || err != nil {
		return err
	}
	p.digest = Digest{Events: p.Tally.Events, SHA256: p.Tally.SHA256(), InputSHA256: p.InputSHA256}
	made, at := p.make(rec)
	all, err := Differences(rec, made)
	if err != nil {
		return fmt.Errorf("verifying run %q: %w", p.ID, err)
	}
	for _, d := range all {
		if compared(rec, rec.FoldVersion != compact.Version, d.Member) {
			p.differ = append(p.differ, d.Member)
		}
	}
	if !p.seen.whole() {
		p.differ = append(p.differ, "raw.ranges")
	}
	if len(p.differ) > 0 {
		p.diverges = p.trace.first(rec, made, p.differ)
	} else if p.Fold != nil && rec.Status.Sealed() && len(unprovedOf(rec)) == 0 { // the record says the same
		h := keyedHistory{History: at}
		if err := h.key.UnmarshalText([]byte(made.HistoryKey)); err != nil {
			return fmt.Errorf("verifying run %q: %w", p.ID, err)
		}
		t.keep(p.ID, h)
	}
	p.trace = trace{}
	if rec.Status != record.StatusRunning {
		p.free()
	}
	return nil
}

// Reports says what came of the runs that were to be verified, by start, once all records were taken.
func (t *Thread) Reports() ([]Report, error) {
	reports := make([]Report, 0, len(t.wanted))
	for _, p := range t.wanted {
		if err := t.compare(p); err != nil {
			return nil, err
		}
		reports = append(reports, p.report())
	}
	return reports, nil
}

func (p *threadRun) report() Report {
	out := Report{RunID: p.ID, Verdict: Unproved, Earliest: p.earliest, Differences: []string{}, Unproved: []string{}}
	if out.Reason = cmp.Or(p.failed, p.unread); out.Reason != "" {
		return out
	}
	out.Raw, out.Unproved = &p.digest, unprovedOf(p.rec)
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
	out.Verdict, out.From = Proved, p.diverges
	switch {
	case len(out.Differences) == 0:
	case p.rec.RawLost && len(p.rec.Raw.Ranges) == record.MaxRanges:
		// What nobody has folded may be there all the same, between two parts of one range.
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "events were passed over when it was folded, and its ranges do not say which"
	default:
		out.Verdict = Differs
	}
	return out
}

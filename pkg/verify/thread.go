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

// Verdict is the result of verifying a run.
type Verdict string

// The values of Verdict.
const (
	// Proved: the raw events produce the same record.
	Proved Verdict = "proved"
	// Differs: the raw events produce another record.
	Differs Verdict = "differs"
	// Unproved: raw events, or the history from which they start, were deleted.
	Unproved Verdict = "unproved"
)

// UnprovedAlone is reported for a run whose record has lineage.AnomalyPlacedAlone: the run began without its parent's
// history. Whether there was room for that history is not checked.
const UnprovedAlone = "the beginning: that there was no room for what the parent had said, as the record says, and no record tells how much there was"

// UnprovedPlace is reported if the parent resolution of a run was not compared.
const UnprovedPlace = "lineage: parent, branch and base are taken as the record says, as no record tells how those runs stood that were going on when this one began"

// Report is the result of verifying one run: whether its raw events produce its record.
type Report struct {
	RunID   string
	Verdict Verdict
	// Reason is why the run is unproved. Earliest is the first offset that is left if raw events of the run were
	// deleted, and -1 if none is left or none was deleted.
	Reason   string
	Earliest int64
	// Raw is the digest of the raw events; nil if they were deleted.
	Raw *Digest
	// Differences lists the members of the record that differ. From is the offset of the first event that causes a
	// difference, or of an earlier event.
	Differences []string
	From        int64
	// Unproved lists the parts that were not compared.
	Unproved []string
}

// Digest is the count and hash of a run's events.
type Digest struct {
	Events              int64
	SHA256, InputSHA256 string
}

// Source reads the records of a thread's runs. If a run has no record yet, or none at all, its methods return a
// *fold.StartError.
type Source interface {
	// Record returns the complete record of a run.
	Record(run string) (*record.Run, error)
	// History returns the history at the end of a run.
	History(run string) (lineage.History, error)
	// Holding returns the sealed and abandoned runs whose records contain an own message with one of these ids.
	Holding(messageIDs []string) (runs []string, err error)
}

// unprovable returns why a run cannot be verified, or returns err as other if err has another cause.
func unprovable(err error) (why string, other error) {
	if u := new(fold.StartError); errors.As(err, &u) {
		return u.Reason, nil
	}
	return "", err
}

// maxRecent is how many histories of a thread are cached.
const maxRecent = 8

// Thread folds runs of one thread again, all together in the order of their raw records, and compares the results
// with the runs' records. Each record is verified independently: a run starts from the recorded history of its
// parent. With FollowChanges a run starts from the new result of its parent's raw events.
type Thread struct {
	loop       *fold.Loop
	source     Source
	refold     *fold.Refold
	resolution *resolutionCheck
	// runs are the runs whose events are read; wanted are those to verify, by start.
	runs   map[string]*threadRun
	wanted []*threadRun
	// recent caches, by run, the histories that were last used or proved; order lists these runs. The next run usually
	// starts from one of them.
	recent map[string]keyedHistory
	order  []string
	// late contains the runs with a late error, by its offset.
	late map[int64]*threadRun
	// made contains, by run, the final histories of runs that were folded again. Later runs start from these. If made is
	// nil, runs start from recorded histories.
	made map[string]keyedHistory
}

// keyedHistory is a history and its key.
type keyedHistory struct {
	lineage.History
	key lineage.HistoryKey
}

// threadRun is one run of a Thread. Its Rec may lack contents.
type threadRun struct {
	*fold.RefoldedRun
	// first is the offset of the run's first raw record, and next is the offset after its last one so far.
	first, next int64
	// until is the exclusive end of the offsets at which the run's records are read.
	until  int64
	wanted bool
	// children counts the runs that need this one and have not begun.
	children int
	// unread describes why the run's record cannot be read.
	unread   string
	earliest int64

	seen  coverage
	trace trace
	// unchecked: there were no keys to check the signature of a record.
	unchecked bool

	// resolved is the result of resolving the run's parent again; it is valid if certain. misplaced lists the members of
	// the record that differ from it.
	resolved  lineage.Run
	certain   bool
	misplaced []string
	begun     bool
	// failed: the record's late error was found.
	failed bool
	// compared: the fold up to the record's end was compared with the record. differ lists the members that differ, and
	// diverges is the offset at which the difference begins.
	compared bool
	digest   Digest
	differ   []Difference
	diverges int64
}

// preliminary reports whether the record's parent resolution is not final yet.
func (p *threadRun) preliminary() bool {
	return p.Rec.InputOnly() && !(p.Rec.Open != nil && p.Rec.Open.Placed)
}

// coverage checks that ranges of offsets match a run's records: each record is in a range, and each range begins and
// ends with a record.
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

// NewThread returns a Thread that verifies the wanted runs. records are the run records of the whole thread; contents
// and checkpoint may be missing. held is the range of offsets that skein.events still has in the partition. The caller
// must call Take for the records in Ranges and may do so for others. If wanted is nil, all runs are verified, and Take
// must get all records of the thread in held.
func NewThread(records []*record.Run, wanted []string, held [2]int64, source Source) (*Thread, error) {
	t := &Thread{source: source, runs: map[string]*threadRun{}, late: map[int64]*threadRun{}, recent: map[string]keyedHistory{}}
	t.refold = fold.NewRefold(records, t)
	t.loop = fold.NewLoop(t.refold)
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
	slices.SortStableFunc(t.wanted, func(a, b *threadRun) int { return compareStart(a.Rec, b.Rec) })
	for _, p := range t.wanted {
		err := t.refold.FoldParents(p.RefoldedRun, func(child *fold.RefoldedRun, parent *record.Run) (*fold.RefoldedRun, error) {
			if parent.Cut != nil && parent.Cut.Next <= child.Rec.Raw.First {
				return nil, &fold.StartError{Reason: "contents of a parent that was going on when it started had been cut"}
			}
			next := t.add(parent, held)
			next.children++
			if parent.Status == record.StatusRunning {
				next.until = max(next.until, child.Rec.Raw.Next)
			}
			return next.RefoldedRun, nil
		})
		if err != nil {
			p.Failed = err.Error()
		}
	}
	var err error
	t.resolution, err = newResolutionCheck(records, wanted == nil, source, func(run string) *threadRun {
		if p := t.runs[run]; p != nil && p.Failed == "" {
			return p
		}
		return nil
	})
	return t, err
}

// add prepares to fold a run again.
func (t *Thread) add(rec *record.Run, held [2]int64) *threadRun {
	if p := t.runs[rec.RunID]; p != nil {
		return p
	}
	p := &threadRun{
		RefoldedRun: t.refold.Fold(rec), first: rec.Raw.First, next: rec.Raw.First,
		until: rec.Raw.Next, seen: coverage{ranges: rec.Raw.Ranges, last: -1}, diverges: rec.Raw.First, earliest: -1,
	}
	if n := len(rec.Raw.Ranges); n > 0 && (rec.Raw.Ranges[0][0] < held[0] || rec.Raw.Ranges[n-1][1] > held[1]) {
		p.Failed, p.Gone = "the raw events are gone: they are older than skein.events keeps them", true
		p.earliest = Earliest(rec.Raw.Ranges, held)
	}
	t.runs[rec.RunID] = p
	if rec.LateError != nil {
		t.late[rec.LateError.Offset] = p
	}
	return p
}

// Earliest returns the first offset of ranges within held, the range of offsets that still exist; -1 if there is none.
func Earliest(ranges [][2]int64, held [2]int64) int64 {
	for _, r := range ranges {
		if at := max(r[0], held[0]); at < min(r[1], held[1]) {
			return at
		}
	}
	return -1
}

// Ranges returns the offset ranges whose records Take must get, ascending and disjoint.
func (t *Thread) Ranges() [][2]int64 {
	var all [][2]int64
	for _, p := range t.runs {
		if p.Failed == "" {
			all = append(append(all, p.Rec.Places()...), [2]int64{p.Rec.Raw.Next, p.until})
		}
	}
	return fold.MergeRanges(all)
}

// Take folds the next raw record of the thread. It ignores records of runs that the Thread does not fold.
func (t *Thread) Take(e record.Event) error {
	taken, outcome, err := t.loop.Next(&e)
	if p := t.late[e.Offset]; p != nil && taken == nil {
		p.failed = p.Rec.LateError.Is(t.loop.Decoded().Payload())
	}
	if taken == nil && err == nil {
		return nil
	}
	reason, err := unprovable(err)
	if err != nil {
		return fmt.Errorf("verifying thread at %s: %w", e.Position(), err)
	}
	p := t.runs[t.refold.Current.ID]
	if p.Failed = reason; reason != "" { // the history that the run starts from is missing
		return t.resolution.hide(p.Rec, runState{open: true, maybe: true})
	}
	if outcome == fold.Folded || outcome == fold.SyntheticEnd {
		if !p.begun {
			p.begun, p.trace = true, newTrace()
			if err := t.begun(p); err != nil {
				return err
			}
		}
		if p.wanted && !p.compared {
			p.trace.note(e.Offset, t.loop.Decoded().Payload(), p.Rec.Kept)
		}
	}
	if p.next == p.Rec.Raw.Next {
		return t.compare(p)
	}
	return nil
}

// Headers returns the headers of the last record, since the next record probably repeats them (record.ParseHeadersLike).
func (t *Thread) Headers() *record.Headers { return &t.loop.Decoded().Headers }

// Takes implements fold.RefoldOwner.
func (t *Thread) Takes(m *fold.Metadata, d *fold.Decoded) (*fold.RefoldedRun, error) {
	if m == nil {
		return nil, nil
	}
	p := t.runs[m.ID]
	if p == nil || p.Failed != "" || !p.wanted && p.children == 0 {
		return nil, nil
	}
	if d.Offset >= m.Next {
		if err := t.compare(p); err != nil || m.Sealed {
			return nil, err
		}
		if p.Rec.Status != record.StatusRunning { // the run expired, and its record does not include later raw records yet
			p.Late = true
			return nil, t.resolution.hide(p.Rec, runState{open: true})
		}
	} else {
		if p.seen.last < 0 {
			p.first = d.Offset
		}
		p.seen.see(d.Offset)
	}
	p.next, p.unchecked = d.Offset+1, p.unchecked || d.Signature == record.SignatureUnknown
	return p.RefoldedRun, nil
}

// Starts implements fold.RefoldOwner. It resolves the run's parent again.
func (t *Thread) Starts(r *fold.RefoldedRun, first *fold.Decoded, input *agui.RunAgentInput, _ *compact.Run) (err error) {
	p := t.runs[r.ID]
	p.resolved, p.misplaced, p.certain, err = t.resolution.check(p, fold.StartOf(r.ID, r.ClientID, first.Payload(), input, first.Offset))
	return err
}

// begun records that a run has begun. From now on, later runs may start from it, and it no longer needs its parent.
func (t *Thread) begun(p *threadRun) error {
	if err := t.resolution.begin(p); err != nil {
		return err
	}
	if p.Needs == nil {
		return nil
	}
	parent := t.runs[p.Needs.ID]
	p.Needs = nil
	if parent.children--; parent.children > 0 || parent.wanted || parent.Fold == nil {
		return nil
	}
	parent.free()
	return t.resolution.hide(parent.Rec, runState{open: true})
}

// History implements fold.RefoldOwner.
func (t *Thread) History(run string) (lineage.History, *lineage.HistoryKey, error) {
	h, err := t.history(run)
	return h.History, &h.key, err
}

// history returns the history at a run's end, from which later runs start.
func (t *Thread) history(run string) (keyedHistory, error) {
	if h, ok := t.made[run]; ok {
		return h, nil
	}
	if h, ok := t.recent[run]; ok {
		return h, nil
	}
	at, err := t.source.History(run)
	if err != nil {
		return keyedHistory{}, err
	}
	h := keyedHistory{at, lineage.KeyOf(at.Messages)}
	heads := t.resolution.heads
	for rec := heads[run]; rec != nil; rec = heads[rec.Base] {
		if rec.Truncated { // its key is of what the record no longer has
			if err := h.key.UnmarshalText([]byte(heads[run].HistoryKey)); err != nil {
				return h, fmt.Errorf("verifying on run %q: %w", run, err)
			}
			break
		}
	}
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

// compare compares a run's fold so far with its record. Only the first call for a run has an effect.
func (t *Thread) compare(p *threadRun) error {
	if p.compared || p.Failed != "" {
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
	made, at := p.Record(rec, p.From, p.first, p.next)
	all, err := Differences(rec, made)
	if err != nil {
		return fmt.Errorf("verifying run %q: %w", p.ID, err)
	}
	byOthers := t.made == nil && rec.FoldVersion != compact.Version
	for _, d := range all {
		if compared(rec, byOthers, d.Member) {
			p.differ = append(p.differ, d)
		}
	}
	if !p.seen.whole() {
		p.differ = append(p.differ, Difference{Member: "raw.ranges"})
	}
	if len(p.differ) > 0 {
		p.diverges = p.trace.first(rec, made, p.differ)
	}
	follows := t.made != nil && rec.Status != record.StatusRunning && rec.Whole() && !rec.RawLost
	proved := t.made == nil && len(p.differ) == 0 && rec.Status.Sealed() && len(unprovedOf(rec)) == 0 // then both histories are equal
	if p.Fold != nil && (follows || proved) {
		h := keyedHistory{History: at}
		if err := h.key.UnmarshalText([]byte(made.HistoryKey)); err != nil {
			return fmt.Errorf("verifying run %q: %w", p.ID, err)
		}
		if follows {
			h.History = h.Share()
			t.made[p.ID] = h
		} else {
			t.keep(p.ID, h)
		}
	}
	p.trace = trace{}
	if rec.Status != record.StatusRunning {
		p.free()
	}
	return nil
}

// Reports returns the results of the wanted runs, ordered by start. Call it after Take was called for all records.
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
	if out.Reason = cmp.Or(p.Failed, p.unread); out.Reason != "" {
		return out
	}
	out.Raw, out.Unproved = &p.digest, unprovedOf(p.Rec)
	switch {
	case p.preliminary():
		out.Unproved = append(out.Unproved, unprovedPending)
	case !p.begun: // no event was found, which is a difference in itself
	case !p.certain:
		out.Unproved = append(out.Unproved, UnprovedPlace)
	default:
		out.Differences = append(out.Differences, p.misplaced...)
	}
	for _, d := range p.differ {
		if !slices.Contains(out.Differences, d.Member) {
			out.Differences = append(out.Differences, d.Member)
		}
	}
	if p.Rec.LateError != nil && !p.failed {
		out.Differences = append(out.Differences, "lateError")
	}
	out.Verdict, out.From = Proved, p.diverges
	switch {
	case len(out.Differences) == 0:
	case p.Rec.RawLost && len(p.Rec.Raw.Ranges) == record.MaxRanges:
		// Two parts of one range may have a record between them that was never folded.
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "events were passed over when it was folded, and its ranges do not say which"
	case p.Signed && p.unchecked && len(p.Rec.Raw.Ranges) == record.MaxRanges:
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "its ranges may contain events that ingest has not signed: verify it where query has --require-ingest"
	case p.Rec.RawLost && // see package adopt
		(p.digest.Events < p.Rec.Raw.Events && !p.seen.whole() || p.first > p.Rec.Raw.First || p.Rec.LateError != nil && !p.failed):
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "some of its raw events are gone: they were not mirrored before a failover"
	default:
		out.Verdict = Differs
	}
	return out
}

// free releases the memory of the fold.
func (p *threadRun) free() { p.Run.Fold, p.Input, p.From = nil, nil, fold.Origin{} }

func compareStart(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) }

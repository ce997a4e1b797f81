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

// The verdicts.
const (
	// Proved: the raw events give the same record.
	Proved Verdict = "proved"
	// Differs: they give another record.
	Differs Verdict = "differs"
	// Unproved: they are gone, or the history that they start from is.
	Unproved Verdict = "unproved"
)

// UnprovedAlone: the run's record says that it began without its parent's history (lineage.AnomalyPlacedAlone), which is not checked.
const UnprovedAlone = "the beginning: that there was no room for what the parent had said, as the record says, and no record tells how much there was"

// UnprovedPlace: the parent resolution of a run was not compared.
const UnprovedPlace = "lineage: parent, branch and base are taken as the record says, as no record tells how those runs stood that were going on when this one began"

// Report is the result of verifying one run: whether its raw events make its record.
type Report struct {
	RunID   string
	Verdict Verdict
	// Reason is why the run is unproved. If raw events of the run are gone, Earliest is the first that is left, or -1 if none is;
	// otherwise it is -1.
	Reason   string
	Earliest int64
	// Raw is the digest of the raw events; nil if they are gone.
	Raw *Digest
	// Differences are the members of the record that differ, From the first event that makes a difference, or one before it.
	Differences []string
	From        int64
	// Unproved is what was not compared.
	Unproved []string
}

// Digest is the count and hash of a run's events.
type Digest struct {
	Events              int64
	SHA256, InputSHA256 string
}

// Source reads the records of a thread's runs, one by one. For a run whose record is gone, or not there yet, it returns a
// *fold.StartError.
type Source interface {
	// Record returns the whole record of a run.
	Record(run string) (*record.Run, error)
	// History returns the history at the end of a run.
	History(run string) (lineage.History, error)
	// Holding returns the sealed and abandoned runs whose records have an own message with one of these ids.
	Holding(messageIDs []string) (runs []string, err error)
}

// unprovable separates the reason for which a run cannot be verified from other errors.
func unprovable(err error) (why string, other error) {
	if u := new(fold.StartError); errors.As(err, &u) {
		return u.Reason, nil
	}
	return "", err
}

// maxRecent bounds the histories of a thread in memory.
const maxRecent = 8

// Thread folds runs of one thread again, together in the order of their raw records, and compares the results with their records.
// Each record is verified by itself: a run starts from the recorded history of its parent. With FollowChanges it starts from what
// the parent's raw events make now.
type Thread struct {
	loop       *fold.Loop
	source     Source
	refold     *fold.Refold
	resolution *resolutionCheck
	// runs are those whose events are read, wanted those to verify, by start.
	runs   map[string]*threadRun
	wanted []*threadRun
	// recent are the histories that were used or proved last, by run, and order those runs: the next run mostly starts from one of
	// them.
	recent map[string]keyedHistory
	order  []string
	// made are the histories at the ends of runs that were folded again, for the runs that start from them; nil: they start from
	// the recorded ones.
	made map[string]keyedHistory
}

// keyedHistory is a history and its key.
type keyedHistory struct {
	lineage.History
	key lineage.Key
}

// threadRun is one run of a Thread. Its rec may lack contents.
type threadRun struct {
	*fold.RefoldedRun
	// first and next are the offsets of its first raw record, and after the last one that has come.
	first, next int64
	// until: the run's records below this offset are read.
	until  int64
	wanted bool
	// children counts the runs that need this one and have not begun.
	children int
	// unread is why its record cannot be read.
	unread   string
	earliest int64

	seen  coverage
	trace trace

	// resolved is the run's parent resolution, done again, if it is certain; misplaced are the members of the record that differ from it.
	resolved  lineage.Run
	certain   bool
	misplaced []string
	begun     bool
	// compared: the result of the raw records below the record's end was compared with the record; differ are the members that
	// differ, from that offset on.
	compared bool
	digest   Digest
	differ   []Difference
	diverges int64
}

// preliminary reports whether the record's parent resolution is preliminary.
func (p *threadRun) preliminary() bool {
	return p.Rec.InputOnly() && !(p.Rec.Open != nil && p.Rec.Open.Placed)
}

// coverage checks that ranges of offsets are those of a run's records: each record lies in one, and each begins and ends with a record.
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

// NewThread returns a Thread over all runs of a thread, by their records, which may lack contents and checkpoint, to verify the wanted
// ones. Held is the range of offsets that skein.events has of the partition. The caller has to give the records in Ranges to Take, and may
// give others. If wanted is nil, all runs are verified, and all records of the thread in held have to be taken.
func NewThread(records []*record.Run, wanted []string, held [2]int64, source Source) (*Thread, error) {
	t := &Thread{source: source, runs: map[string]*threadRun{}, recent: map[string]keyedHistory{}}
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

// add adds a run to those that are folded.
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
		p.earliest = earliest(rec.Raw.Ranges, held)
	}
	t.runs[rec.RunID] = p
	return p
}

// earliest returns the first offset of ranges that is not gone; -1 if there is none.
func earliest(ranges [][2]int64, held [2]int64) int64 {
	for _, r := range ranges {
		if at := max(r[0], held[0]); at < min(r[1], held[1]) {
			return at
		}
	}
	return -1
}

// Ranges are the offsets whose records have to be taken, rising and disjoint.
func (t *Thread) Ranges() [][2]int64 {
	var all [][2]int64
	for _, p := range t.runs {
		if p.Failed == "" {
			all = append(append(all, p.Rec.Raw.Ranges...), [2]int64{p.Rec.Raw.Next, p.until})
		}
	}
	return fold.MergeRanges(all)
}

// Take takes the next raw record of the thread's key; it ignores those of runs that are not folded.
func (t *Thread) Take(e record.Event) error {
	taken, outcome, err := t.loop.Next(e)
	if taken == nil && err == nil {
		return nil
	}
	reason, err := unprovable(err)
	if err != nil {
		return fmt.Errorf("verifying thread at %s: %w", e.Position(), err)
	}
	p := t.runs[t.refold.Current.ID]
	if p.Failed = reason; reason != "" { // the history that it starts from is not there
		return t.resolution.hide(p.Rec, stands{open: true, maybe: true})
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

// Headers returns those of the last record, which the next one is likely to repeat (record.ParseHeadersLike).
func (t *Thread) Headers() record.Headers { return t.loop.Decoded().Headers }

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
		if p.Rec.Status != record.StatusRunning { // it expired, and later records are not in its record yet
			p.Late = true
			return nil, t.resolution.hide(p.Rec, stands{open: true})
		}
	} else {
		if p.seen.last < 0 {
			p.first = d.Offset
		}
		p.seen.see(d.Offset)
	}
	p.next = d.Offset + 1
	return p.RefoldedRun, nil
}

// Starts implements fold.RefoldOwner: the parent is resolved again.
func (t *Thread) Starts(r *fold.RefoldedRun, first *fold.Decoded, input *agui.RunAgentInput, _ *compact.Run) (err error) {
	p := t.runs[r.ID]
	p.resolved, p.misplaced, p.certain, err = t.resolution.check(p, fold.StartOf(r.ID, r.ClientID, first.Payload(), input, first.Offset))
	return err
}

// begun notes that a run has begun: from now on others may start from it, and it no longer needs its parent.
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
	return t.resolution.hide(parent.Rec, stands{open: true})
}

// History implements fold.RefoldOwner.
func (t *Thread) History(run string) (lineage.History, *lineage.Key, error) {
	h, err := t.history(run)
	return h.History, &h.key, err
}

// history returns the history at a run's end that others start from.
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

// compare compares a run's fold so far with its record, once.
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
	proved := t.made == nil && len(p.differ) == 0 && rec.Status.Sealed() && len(unprovedOf(rec)) == 0 // the record says the same
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

// Reports returns the results of the wanted runs, by start, once all records were taken.
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
	case !p.begun: // no event of it is there, which differs
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
	out.Verdict, out.From = Proved, p.diverges
	switch {
	case len(out.Differences) == 0:
	case p.Rec.RawLost && len(p.Rec.Raw.Ranges) == record.MaxRanges:
		// A record that was never folded may lie between two parts of one range.
		out.Verdict, out.Differences = Unproved, []string{}
		out.Reason = "events were passed over when it was folded, and its ranges do not say which"
	default:
		out.Verdict = Differs
	}
	return out
}

// free drops what the fold holds.
func (p *threadRun) free() { p.Run.Fold, p.Input, p.From = nil, nil, fold.Origin{} }

func compareStart(a, b *record.Run) int { return cmp.Compare(a.Raw.First, b.Raw.First) }

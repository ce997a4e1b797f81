package verify

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// resolutionCheck resolves the parents of runs again as the compactor did: at each run's first event, among the runs whose
// first event came earlier, in their state at that time. An input that was sent separately from the stream begins no run.
//
// No record contains when an idle run expired or when an expired run was closed. So the check keeps two lineage
// threads: in `least` such a run is open, in `most` it has ended. A result that both give is certain, because the last
// to end counts among ended runs, and the last to begin among equal histories. Runs whose events are not read count as
// open in an unknown state.
type resolutionCheck struct {
	byStart, byNext []*record.Run
	// started and ended are how many runs of byStart and byNext the threads have received.
	started, ended int
	least, most    *lineage.Thread

	// read returns the run and its fold if the run's events are read, else nil.
	read func(run string) *threadRun
	// source finds the runs that contain a message. It is needed if an input in RUN_STARTED names no parent.
	source Source
	heads  map[string]*record.Run
	// unsure: the result depends on the unknown contents of a run that had not ended by then.
	unsure bool
	// open contains runs that are read, have begun and have no recorded end yet. blind contains runs that are not read
	// and had not ended.
	open  map[string]*threadRun
	blind map[string]*record.Run
	// doubtful: `most` differs from `least`.
	doubtful bool
	// lost: a run whose parent resolution is unknown has begun.
	lost bool
	// touched: expired runs may have later raw records that are not in their run records, because dropped records do not
	// reactivate a run. If all raw records are read (whole), the check sees such records.
	touched, whole bool
}

func newResolutionCheck(heads []*record.Run, whole bool, source Source, read func(run string) *threadRun) (*resolutionCheck, error) {
	p := &resolutionCheck{
		byStart: slices.Clone(heads), byNext: slices.Clone(heads), read: read, source: source, heads: make(map[string]*record.Run, len(heads)),
		open: map[string]*threadRun{}, blind: map[string]*record.Run{}, whole: whole,
	}
	slices.SortFunc(p.byStart, compareStart)
	slices.SortFunc(p.byNext, func(a, b *record.Run) int { return cmp.Compare(a.Raw.Next, b.Raw.Next) })
	for _, h := range heads {
		p.heads[h.RunID] = h
	}
	for _, t := range []**lineage.Thread{&p.least, &p.most} {
		var err error
		if *t, err = lineage.NewThread(); err != nil {
			return nil, err
		}
		(*t).SetKnown(p)
	}
	return p, nil
}

// Any implements lineage.Known.
func (p *resolutionCheck) Any(ids []string, offset int64) (bool, error) {
	runs, err := p.source.Holding(ids)
	if err != nil {
		return false, err
	}
	for _, run := range runs {
		switch h := p.heads[run]; {
		case h == nil || h.Raw.First >= offset:
		case h.InputOnly(): // the record does not show whether the parent resolution was final, so that the run counted
			p.unsure = true
		case h.Raw.Next <= offset:
			return true, nil
		case p.read(run) == nil || p.open[run] == nil: // otherwise the lineage thread itself compares the run's messages
			p.unsure = true
		}
	}
	return false, nil
}

// History implements lineage.Known.
func (p *resolutionCheck) History(run string) (lineage.History, error) {
	if h := p.heads[run]; h.Status == record.StatusRunning || p.blind[run] != nil {
		p.unsure = true
		return lineage.History{}, nil
	}
	return p.source.History(run)
}

// check resolves the parent of a run again and returns the members of the record that differ. certain is false if that
// cannot be decided. Call check for runs in the order of their first events.
func (p *resolutionCheck) check(own *threadRun, start lineage.Start) (at lineage.Run, differ []string, certain bool, err error) {
	if err := p.pass(own.Rec, start.Offset); err != nil {
		return at, nil, false, err
	}
	delete(p.blind, own.Rec.RunID) // it begins now
	p.unsure = false
	least, err := p.least.Place(start)
	if err != nil {
		return at, nil, false, err
	}
	most := least
	if p.doubtful || len(p.blind) > 0 {
		if most, err = p.most.Place(start); err != nil {
			return at, nil, false, err
		}
	}
	if own.Rec.FoldVersion != compact.Version { // other rules resolved its parent, which it keeps
		return at, nil, false, nil
	}
	if own.Rec.RawLost || p.lost || !samePlace(least, most) || p.unsure || !p.stoodSo(start, least.Run) {
		return at, nil, false, nil
	}
	rec, here := own.Rec, fold.RecordLineage(least.Run)
	for _, m := range []struct {
		name string
		same bool
	}{
		{"parentRunId", here.ParentRunID == rec.ParentRunID},
		{"parentBy", here.ParentBy == rec.ParentBy},
		{"spawnedBy", here.SpawnedBy == rec.SpawnedBy},
		{"spawned", here.Spawned == rec.Spawned},
		{"branchId", here.BranchID == rec.BranchID},
		{"rootRunId", here.RootRunID == rec.RootRunID},
		{"depth", here.Depth == rec.Depth},
		{"base", least.Run.Base == rec.Base},
		{"stats.anomalies", sameAnomalies(least, rec.Stats.Anomalies)},
	} {
		if !m.same {
			differ = append(differ, m.name)
		}
	}
	return least.Run, differ, true, nil
}

func samePlace(a, b lineage.Placement) bool {
	return fold.RecordLineage(a.Run) == fold.RecordLineage(b.Run) && a.Run.Base == b.Run.Base && slices.Equal(a.Anomalies, b.Anomalies)
}

// sameAnomalies reports whether a record counts the anomalies of its parent resolution. It is unknown whether there was room
// for the parent's history (UnprovedAlone), but only a run with an open parent can start without that history.
func sameAnomalies(at lineage.Placement, counted map[string]int64) bool {
	for _, rule := range []string{lineage.AnomalySelfParent, lineage.AnomalyParentCycle} {
		if slices.Contains(at.Anomalies, rule) != (counted[rule] > 0) {
			return false
		}
	}
	return counted[lineage.AnomalyPlacedAlone] == 0 || at.Run.Parent != "" && at.Run.Base == ""
}

// stoodSo reports whether the states of the runs among which the parent was chosen are known.
func (p *resolutionCheck) stoodSo(start lineage.Start, at lineage.Run) bool {
	for _, h := range p.blind {
		if !fold.Final(h) && h.InputOnly() { // if the run has begun since, its record lacks the final resolution
			return false
		}
	}
	given := start.ParentRunID
	named := given != "" && given != start.RunID && given != start.ClientID
	switch {
	case named && (start.Input == nil || start.Input.Serialised):
		return true
	case start.Input != nil: // the parent is chosen by comparing histories
		if len(p.blind) > 0 {
			return named && at.ParentBy == lineage.ParentExplicit && at.Base != ""
		}
		for _, o := range p.open {
			if start.Offset > o.until || o.Rec.FoldVersion != compact.Version {
				return named && at.ParentBy == lineage.ParentExplicit && at.Base != ""
			}
		}
		if named || at.ParentBy == lineage.ParentContent || !start.Input.Serialised {
			return true
		}
		// Whether the last run to end has a message without an id shows whether there is a parent.
		if p.doubtful && slices.ContainsFunc(start.Input.Messages, func(m agui.Message) bool { return agui.Unnamed(m.ID) }) {
			return false
		}
	}
	// Here the parent is chosen by the ends of runs, and any open run may have expired just before.
	last := int64(-1)
	if e, ok := p.least.Run(at.Parent); ok {
		last = e.End
	}
	for _, o := range p.open {
		if o.next-1 > last {
			return false
		}
	}
	return len(p.blind) == 0 && !p.touched
}

// pass adds the recorded states of all runs before an offset to the threads. It skips the run own, which begins at
// that offset.
func (p *resolutionCheck) pass(own *record.Run, offset int64) error {
	for ; p.started < len(p.byStart) && p.byStart[p.started].Raw.First < offset; p.started++ {
		h := p.byStart[p.started]
		if h.RunID != own.RunID && !p.whole && h.Status == record.StatusRunning && h.InputOnly() {
			p.blind[h.RunID] = h // even if it is read: its first event may come after its record, up to which events are read
		}
		r := p.read(h.RunID)
		isRead := r != nil && (r.seen.last >= 0 || !h.RawLost) // else its first record is gone
		if h.RunID == own.RunID || isRead || h.Raw.Next <= offset && h.Status != record.StatusRunning {
			continue
		}
		if err := p.hide(h, runState{open: true, maybe: h.InputSHA256 != ""}); err != nil {
			return err
		}
	}
	for ; p.ended < len(p.byNext) && p.byNext[p.ended].Raw.Next <= offset; p.ended++ {
		h := p.byNext[p.ended]
		if r := p.read(h.RunID); h.Status == record.StatusRunning || h.RunID == own.RunID || r != nil && r.Late {
			continue
		}
		delete(p.open, h.RunID)
		delete(p.blind, h.RunID)
		var how runState
		switch {
		case h.Status.Sealed():
			how = runState{sealed: true}
		case !h.InputOnly():
			how = runState{givenUp: true, sealed: fold.Final(h)}
			p.touched = p.touched || !p.whole && !fold.Final(h)
		case fold.Final(h): // closed with only an input
			how = runState{maybe: true, sealed: true}
		default:
			continue
		}
		if err := p.add(h, how); err != nil {
			return err
		}
	}
	return nil
}

// runState is the state of a run as the threads see it.
type runState struct {
	// open: the run is open and its messages are unknown. givenUp: the run is as in its record, but may or may not have
	// ended.
	open, givenUp bool
	// maybe: the run may not exist.
	maybe bool
	// sealed: the run's end is final.
	sealed bool
}

func (p *resolutionCheck) add(h *record.Run, how runState) error {
	r := fold.LineageOf(h)
	r.End = h.Raw.Next - 1
	if err := r.HistoryKey.UnmarshalText([]byte(h.HistoryKey)); err != nil {
		return fmt.Errorf("placing runs again: %w", err)
	}
	open := r
	open.End, open.Status, open.Sealed = -1, lineage.StatusRunning, false
	r.Sealed = how.sealed
	if how.open {
		open.HistoryKey = lineage.HistoryKey{}
		r = open
	}
	p.doubtful = p.doubtful || how.maybe || how.givenUp
	if how.givenUp {
		return p.put(&open, &r)
	}
	if how.maybe {
		return p.put(nil, &r)
	}
	return p.put(&r, &r)
}

// hide treats a run as one whose events are not read, starting now.
func (p *resolutionCheck) hide(h *record.Run, how runState) error {
	delete(p.open, h.RunID)
	p.blind[h.RunID] = h
	return p.add(h, how)
}

// begin adds an open run to the threads, at its first event.
func (p *resolutionCheck) begin(own *threadRun) error {
	r := fold.LineageOf(own.Rec)
	if own.preliminary() { // the record's resolution is not final
		if !own.certain {
			p.lost = true
			return nil
		}
		r = own.resolved
		r.Start = own.Rec.Raw.First
	}
	r.End, r.Status, r.Sealed = -1, lineage.StatusRunning, false
	p.open[r.ID] = own
	messages := func() []agui.Message { return own.Fold.Messages() }
	for _, t := range []*lineage.Thread{p.least, p.most} {
		if err := t.AddLive(&r, messages); err != nil {
			return fmt.Errorf("placing runs again: %w", err)
		}
	}
	return nil
}

func (p *resolutionCheck) put(least, most *lineage.Run) error {
	if least != nil {
		if err := p.least.Add(*least); err != nil {
			return fmt.Errorf("placing runs again: %w", err)
		}
	}
	if err := p.most.Add(*most); err != nil {
		return fmt.Errorf("placing runs again: %w", err)
	}
	return nil
}

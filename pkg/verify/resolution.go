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

// resolutionCheck resolves the parents of runs again, each at its first event, as the compactor did: among the runs whose first
// event lay before, in their state at that time. An input that was sent beside the stream begins no run.
//
// Part of that state is in no record: when an idle run expired, and when an expired one was closed. So there are two threads: in
// least such a run is open, in most it has ended. A result that both give is certain, since of ended runs the last to end counts,
// and of equal histories the last to begin. Runs whose events are not read are open in an unknown state.
type resolutionCheck struct {
	byStart, byNext []*record.Run
	// started and ended are how many of them the threads know of.
	started, ended int
	least, most    *lineage.Thread

	// read returns the run's proof if its events are read.
	read func(run string) *threadRun
	// source finds the runs that have a message. It is needed if an input on RUN_STARTED names no parent.
	source Source
	heads  map[string]*record.Run
	// unsure: the run being resolved depends on what a run held that had not ended by then.
	unsure bool
	// open are the runs that are read, have begun, and have no recorded end before; blind are those that are not read and had not
	// ended.
	open  map[string]*threadRun
	blind map[string]*record.Run
	// doubtful: most differs from least.
	doubtful bool
	// lost: a run has begun whose parent resolution is not known.
	lost bool
	// touched: runs may have expired and had raw records since that are not in their records, as dropped records do not reopen
	// a run. If all raw records are read (whole), these are seen.
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
		(*t).Tell(p)
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
		case h.InputOnly(): // whether its place was decided, and it counted, its record does not say
			p.unsure = true
		case h.Raw.Next <= offset:
			return true, nil
		case p.read(run) == nil || p.open[run] == nil: // else the thread has looked at what it held
			p.unsure = true
		}
	}
	return false, nil
}

// check resolves the parent of a run again and returns the members of its record that differ; certain is false if that is not
// known. Runs are resolved in the order of their first events.
func (p *resolutionCheck) check(own *threadRun, start lineage.Start) (at lineage.Run, differ []string, certain bool, err error) {
	if err := p.pass(own.Rec, start.Offset); err != nil {
		return at, nil, false, err
	}
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
	if own.Rec.FoldVersion != compact.Version { // it was resolved by other rules, and keeps its parent
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

// sameAnomalies reports whether a record counts the anomalies of its parent resolution. How much room a record had is not known
// (UnprovedAlone), but only a run with an open parent can start without its history.
func sameAnomalies(at lineage.Placement, counted map[string]int64) bool {
	for _, rule := range []string{lineage.AnomalySelfParent, lineage.AnomalyParentCycle} {
		if slices.Contains(at.Anomalies, rule) != (counted[rule] > 0) {
			return false
		}
	}
	return counted[lineage.AnomalyPlacedAlone] == 0 || at.Run.Parent != "" && at.Run.Base == ""
}

// stoodSo reports whether the state of the runs among which the parent was found is known.
func (p *resolutionCheck) stoodSo(start lineage.Start, at lineage.Run) bool {
	for _, h := range p.blind {
		if !fold.Final(h) && h.InputOnly() { // if it has begun since, its record does not have its resolution
			return false
		}
	}
	switch given := start.ParentRunID; {
	case given != "" && given != start.RunID && given != start.ClientID:
		return true
	case start.Input != nil: // by histories
		if len(p.blind) > 0 {
			return false
		}
		for _, o := range p.open {
			if start.Offset > o.until || o.Rec.FoldVersion != compact.Version {
				return false
			}
		}
		if at.ParentBy == lineage.ParentContent || !start.Input.Serialised {
			return true
		}
	}
	// By ends: any open run may have expired just then.
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

// pass adds to the threads what records say of the runs before an offset, except for one that begins there.
func (p *resolutionCheck) pass(own *record.Run, offset int64) error {
	for ; p.started < len(p.byStart) && p.byStart[p.started].Raw.First < offset; p.started++ {
		h := p.byStart[p.started]
		if h.RunID == own.RunID || p.read(h.RunID) != nil || h.Raw.Next <= offset && h.Status != record.StatusRunning {
			continue
		}
		if err := p.hide(h, stands{open: true, maybe: h.InputSHA256 != ""}); err != nil {
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
		var how stands
		switch {
		case h.Status.Sealed():
			how = stands{sealed: true}
		case !h.InputOnly():
			how = stands{givenUp: true, sealed: fold.Final(h)}
			p.touched = p.touched || !p.whole && !fold.Final(h)
		case fold.Final(h): // with nothing but its input: once it was closed
			how = stands{maybe: true, sealed: true}
		default:
			continue
		}
		if err := p.add(h, how); err != nil {
			return err
		}
	}
	return nil
}

// stands is the state of a run.
type stands struct {
	// open: it is open, and what it has said is not known. givenUp: it is as in its record, and may have ended or not.
	open, givenUp bool
	// maybe: it may not exist.
	maybe bool
	// sealed: its end is final.
	sealed bool
}

func (p *resolutionCheck) add(h *record.Run, how stands) error {
	r := fold.LineageOf(h)
	r.End = h.Raw.Next - 1
	if err := r.HistoryKey.UnmarshalText([]byte(h.HistoryKey)); err != nil {
		return fmt.Errorf("placing runs again: %w", err)
	}
	open := r
	open.End, open.Status, open.Sealed = -1, lineage.StatusRunning, false
	r.Sealed = how.sealed
	if how.open {
		open.HistoryKey = lineage.Key{}
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

// hide treats a run from now on as one whose events are not read.
func (p *resolutionCheck) hide(h *record.Run, how stands) error {
	delete(p.open, h.RunID)
	p.blind[h.RunID] = h
	return p.add(h, how)
}

// begin adds an open run to the threads, from its first event on.
func (p *resolutionCheck) begin(own *threadRun) error {
	r := fold.LineageOf(own.Rec)
	if own.preliminary() { // its record has only the preliminary resolution
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
		if err := t.AddLive(r, messages); err != nil {
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

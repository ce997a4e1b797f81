package query

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// unprovedPlace says that a run's place is not part of its proof.
const unprovedPlace = "lineage: parent, branch and base are taken as the record says, as runs were going on when this one began"

// placer decides places again, of runs in the order of their starts. What was decided can be decided again
// where every run of the thread that had started had ended by then, and for good: how one stood that was
// going on, or that was silent until it was given up, no record says.
type placer struct {
	rows   []store.Run // by start
	thread *lineage.Thread
	next   int        // the first row that the thread does not have
	own    *store.Run // of the run that was asked for last: it is put in after it is placed
	open   bool       // a run that is in has not ended for good
}

// differences are the members of a record's place that come out otherwise; provable is false where that
// cannot be told.
func (p *placer) differences(rec *record.Run, start lineage.Start) (names []string, provable bool, err error) {
	if p.thread == nil {
		if p.thread, err = lineage.NewThread(); err != nil {
			return nil, false, fmt.Errorf("%w: %w", errBroken, err)
		}
	}
	if own := p.own; own != nil && own.RunID != rec.RunID {
		p.own = nil
		if err := p.add(own); err != nil {
			return nil, false, err
		}
	}
	for ; p.next < len(p.rows) && p.rows[p.next].Raw.First < start.Offset; p.next++ {
		row := &p.rows[p.next]
		if row.RunID == rec.RunID {
			p.own = row
		} else if err := p.add(row); err != nil {
			return nil, false, err
		}
	}
	at, err := p.thread.Place(start)
	if err != nil {
		return nil, false, fmt.Errorf("%w: %w", errBroken, err)
	}
	if p.open || at.Concurrent || rec.RawLost {
		return nil, false, nil
	}
	for _, m := range []struct {
		name string
		same bool
	}{
		{"parentRunId", at.Run.Parent == rec.ParentRunID},
		{"parentBy", string(at.Run.ParentBy) == string(rec.ParentBy)},
		{"spawnedBy", at.Run.SpawnedBy == string(rec.SpawnedBy)},
		{"branchId", at.Run.Branch == rec.BranchID},
		{"rootRunId", at.Run.Root == rec.RootRunID},
		{"depth", at.Run.Depth == rec.Depth},
		{"base", at.Run.Base == rec.Base},
	} {
		if !m.same {
			names = append(names, m.name)
		}
	}
	return names, true, nil
}

func (p *placer) add(row *store.Run) error {
	h := headOf(*row)
	if err := h.HistoryKey.UnmarshalText([]byte(row.HistoryKey)); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	p.open = p.open || !h.Sealed
	if err := p.thread.Add(h); err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// startOf is what a run is placed by: its first event, at an offset, and its input.
func startOf(rec *record.Run, first []byte, input *agui.RunAgentInput, offset int64) lineage.Start {
	s := lineage.Start{RunID: rec.RunID, GivenID: rec.GivenRunID, Input: input, Offset: offset}
	if s.GivenID == "" {
		s.GivenID = rec.RunID
	}
	// An error cannot be: the event was folded.
	if ev, err := agui.Decode(first); err == nil && ev.Type == agui.RunStarted {
		s.ParentRunID = ev.ParentRunID
	}
	if s.ParentRunID == "" && input != nil {
		s.ParentRunID = input.ParentRunID
	}
	return s
}

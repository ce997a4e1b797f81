package fold

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Resolution is a run's parent resolution, which its first event makes final: its lineage and what its fold starts from.
type Resolution struct {
	lineage.Placement
	// Parent is the history that the run starts from, Base the one that its record is encoded relative to; each empty without one.
	Parent, Base lineage.History
	// Input is the run's input as it is recorded, Fold the fold before the first event.
	Input *agui.RunAgentInput
	Fold  *compact.Run
	// Before is the run before its first event.
	Before Run
}

// Resolve returns a run's resolution as of an offset, or the one that its record has (Run.Placed); it changes nothing. first is the run's
// first event, or nil for a preliminary resolution of a pending run, and input the run's input by then, or nil.
func (t *Thread[M]) Resolve(m *Metadata, r *Run, first *agui.Event, input *agui.RunAgentInput, offset int64) (*Resolution, error) {
	at := &Resolution{}
	if r.Placed != nil {
		*at = *r.Placed
		if at.Run.Parent != "" { // the run's end needs its parent
			if err := t.dir.Load(at.Run.Parent, m.Start); err != nil {
				return nil, err
			}
		}
	} else if err := t.resolveAmong(at, StartOf(m.ID, m.ClientRunID(), first, input, offset), r.Input); err != nil {
		return nil, err
	}
	by := at.Run.ParentBy
	at.Run.HasInput = input != nil && !lineage.Normalised(by, at.Parent, input)
	at.Fold, at.Input = Start(m.ID, by, at.Parent, input, t.Keep)
	return at, nil
}

// resolveAmong chooses parent, branch and base among the runs of the thread. earlier is an input that came before the first event.
func (t *Thread[M]) resolveAmong(at *Resolution, start lineage.Start, earlier *agui.RunAgentInput) (err error) {
	if at.Placement, err = t.Lineage.Place(start); err != nil || at.Run.Parent == "" {
		return err
	}
	if at.Parent, err = t.dir.History(at.Run.Parent); err != nil {
		return err
	}
	if at.Run.Base != "" {
		at.Base = at.Parent
		return nil
	}
	// A record of the resolution alone has to hold what the run takes over, beside an input that came before its first event.
	if t.Fits != nil && !t.Fits(at.Parent, earlier) {
		at.Parent = lineage.History{}
		at.Anomalies = append(at.Anomalies, lineage.AnomalyPlacedAlone)
	}
	return nil
}

// StartOf returns what lineage needs to resolve the parent of a run: its first event, or nil for a run that has only an input, and its
// input, or nil.
func StartOf(run, clientRunID string, first *agui.Event, input *agui.RunAgentInput, offset int64) lineage.Start {
	s := lineage.Start{RunID: run, ClientID: clientRunID, Offset: offset, Input: input}
	if first != nil && first.Type == agui.RunStarted {
		s.ParentRunID = first.ParentRunID
	}
	if input != nil {
		s.ParentRunID = cmp.Or(s.ParentRunID, input.ParentRunID)
	}
	return s
}

// Describe sets lineage and input in a record, with the input's hash.
func (at *Resolution) Describe(rec *record.Run, inputSHA256 string) {
	rec.Lineage, rec.Base = RecordLineage(at.Run), at.Run.Base
	FillInput(rec, at.Parent, at.Base, at.Input, inputSHA256)
}

package fold

import (
	"cmp"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Resolution is a run's parent resolution: its lineage and what its fold starts from. The run's first event makes it
// final.
type Resolution struct {
	lineage.Placement
	// Parent is the history that the run starts from. Base is the history that its record is encoded relative to. Each is
	// empty if there is none.
	Parent, Base lineage.History
	// Input is the run's input as it is recorded. Fold is the fold before the first event.
	Input *agui.RunAgentInput
	Fold  *compact.Run
	// Before is the run's state before its first event; nil if that begins the run.
	Before *Run
}

// Resolve returns a run's parent resolution at an offset, or the one in its record (Run.Placed). It changes nothing.
// first is the run's first event, or nil for the preliminary resolution of a pending run. input is the run's input so
// far, or nil.
func (t *Thread[M]) Resolve(m *Metadata, r *Run, first *agui.Event, input *agui.RunAgentInput, offset int64) (*Resolution, error) {
	at := &Resolution{}
	if r.Placed != nil {
		*at = *r.Placed
		if at.Run.Parent != "" { // needed again at the run's end
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

// resolveAmong chooses parent, branch and base among the runs of the thread. earlier is an input that arrived before
// the first event.
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
	// Without a base, the run's record must contain the parent's history, in addition to an input that arrived before the
	// first event.
	if t.Fits != nil && !t.Fits(at.Parent, earlier) {
		at.Parent = lineage.History{}
		at.Anomalies = append(at.Anomalies, lineage.AnomalyPlacedAlone)
	}
	return nil
}

// StartOf returns the arguments of a parent resolution. first is the run's first event, or nil if the run has only an
// input. input may be nil.
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

// Describe sets lineage and input in a record. inputSHA256 is the hash of the input.
func (at *Resolution) Describe(rec *record.Run, inputSHA256 string) {
	rec.Lineage, rec.Base = RecordLineage(at.Run), at.Run.Base
	FillInput(rec, at.Parent, at.Base, at.Input, inputSHA256)
}

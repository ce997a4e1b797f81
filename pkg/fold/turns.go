package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
)

// Turns folds the runs of one thread, one after another. It resolves parents as the compactor does for runs that do not
// overlap. A run without a terminal event ends when the next one begins.
type Turns struct {
	kept   agui.Families
	thread *lineage.Thread
	known  lineage.KnownMessages
	runs   []*Turn
	byID   map[string]*Turn
}

// Turn is one run in Turns.
type Turn struct {
	// Place is the run's lineage. Its offsets count runs.
	Place lineage.Run
	Fold  *compact.Run
	// Late is the RUN_ERROR that came after the run's RUN_FINISHED; nil if none came.
	Late json.RawMessage
	at   lineage.History
}

// NewTurns returns a thread without runs. Its runs keep events of the families in kept.
func NewTurns(kept agui.Families) (*Turns, error) {
	thread, err := lineage.NewThread()
	if err != nil {
		return nil, fmt.Errorf("folding runs: %w", err)
	}
	s := &Turns{kept: kept, thread: thread, known: lineage.KnownMessages{}, byID: map[string]*Turn{}}
	thread.SetKnown(s)
	return s, nil
}

// Any implements lineage.Known.
func (s *Turns) Any(ids []string, offset int64) (bool, error) { return s.known.Any(ids, offset) }

// History implements lineage.Known.
func (s *Turns) History(run string) (lineage.History, error) { return s.byID[run].at, nil }

// Runs returns the runs in order.
func (s *Turns) Runs() []*Turn { return s.runs }

// Add folds the next run. The argument given is its client run id, and input was sent beside the stream or is nil. Add
// calls left with the index of each event that it leaves out and the reason: the event is malformed or follows the
// terminal event, and is not Late. An error concerns the input, or is not about the data.
func (s *Turns) Add(given string, input []byte, events [][]byte, left func(event int, why error)) error {
	id := given
	for n := 2; s.byID[id] != nil; n++ {
		id = given + "~" + strconv.Itoa(n)
	}
	var in *agui.RunAgentInput
	if input != nil {
		var err error
		if in, err = agui.DecodeInput(input, id); err != nil {
			return fmt.Errorf("reading input: %w", err)
		}
	}
	r, folded := &Turn{}, false
	for i, text := range events {
		ev, err := Decode(text)
		if err != nil && !folded && in == nil { // a malformed end alone is no run
			ev = nil
		}
		if ev != nil && !folded {
			if err := s.begin(r, id, given, in, ev); err != nil {
				return err
			}
		}
		switch {
		case err == nil:
			err = r.Fold.Apply(ev)
		case ev != nil && r.Fold.End(ev) == nil:
			folded = true
		}
		switch {
		case err == nil:
			folded = true
		case errors.Is(err, compact.ErrEnded) && ev.Type == agui.RunError && r.Late == nil && r.Fold.Summary().Status != compact.StatusError:
			r.Late = bytes.Clone(ev.Body)
		case agui.IsMalformed(err) || errors.Is(err, compact.ErrEnded):
			left(i, err)
		default:
			return fmt.Errorf("folding run %q: %w", id, err)
		}
	}
	if !folded {
		if err := s.begin(r, id, given, in, nil); err != nil {
			return err
		}
	}
	return s.end(r)
}

// begin resolves a run's parent at its first event.
func (s *Turns) begin(r *Turn, id, given string, input *agui.RunAgentInput, ev *agui.Event) error {
	if input == nil && ev != nil && ev.Type == agui.RunStarted {
		input = ev.Input(id)
	}
	place, err := s.thread.Place(StartOf(id, given, ev, input, int64(2*len(s.runs))))
	if err != nil {
		return fmt.Errorf("folding run %q: %w", id, err)
	}
	var parent lineage.History
	if p := s.byID[place.Run.Parent]; p != nil {
		parent = p.at
	}
	r.Place = place.Run
	r.Fold, _ = Start(id, place.Run.ParentBy, parent, input, s.kept)
	for _, rule := range place.Anomalies {
		r.Fold.Note(rule)
	}
	return nil
}

// end adds a finished run, so that later runs can start from it.
func (s *Turns) end(r *Turn) error {
	r.at = lineage.History{Messages: r.Fold.Messages(), State: r.Fold.State()}.Share()
	r.Place.End, r.Place.Sealed, r.Place.Status = r.Place.Start+1, true, lineage.StatusFinished
	r.Place.MessageCount, r.Place.HistoryKey = len(r.at.Messages), lineage.KeyOf(r.at.Messages)
	r.Place.Interrupts = InterruptIDs(r.Fold.Summary().Interrupts)
	s.known.Add(r.Place.End, r.at.Messages)
	s.runs, s.byID[r.Place.ID] = append(s.runs, r), r
	if err := s.thread.Add(r.Place); err != nil {
		return fmt.Errorf("folding run %q: %w", r.Place.ID, err)
	}
	return nil
}

// Steps returns the runs as the argument of compact.Compacted. A run that names no parent gets the name of its resolved
// parent, with two exceptions: the receiver would resolve the same parent, or that id means another run by then. In the
// second case the run continues the previous one.
func (s *Turns) Steps() []compact.Step {
	steps := make([]compact.Step, len(s.runs))
	latest := map[string]*Turn{} // by client run id
	for i, r := range s.runs {
		p, by := s.byID[r.Place.Parent], r.Place.ParentBy
		steps[i].Run, steps[i].Late = r.Fold, r.Late
		if p != nil {
			steps[i].Parent = p.Fold
			switch named := latest[p.Place.ID]; {
			case by == lineage.ParentLatest && s.runs[i-1] == p && p.Fold.Ended():
			case by != lineage.ParentExplicit && named != nil && named != p:
				steps[i].Parent = s.runs[i-1].Fold
			default:
				steps[i].ParentRunID = p.Place.ID
			}
		}
		latest[r.Place.ClientRunID()] = r
	}
	return steps
}

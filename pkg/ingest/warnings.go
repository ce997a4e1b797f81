package ingest

import (
	"bytes"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/fold"
)

// mostWarnings is how many warnings an answer has at most.
const mostWarnings = 16

// warning says that an event, or an input, was accepted, and that the run will count it as an anomaly.
type warning struct {
	// Line is where in the body it begins; absent for an input.
	Line    int64  `json:"line,omitempty"`
	Anomaly string `json:"anomaly"`
	Detail  string `json:"detail"`
}

// compareIDs returns warnings for ids in a payload that contradict the path; what of them is empty names nothing.
func (t target) compareIDs(line int64, what, thread, run string) (list []warning) {
	if thread != "" && thread != t.thread {
		list = append(list, warning{line, fold.AnomalyThread, fmt.Sprintf("%s names thread %.100q; it is published to thread %.100q, as the path says", what, thread, t.thread)})
	}
	if run != "" && run != t.run {
		list = append(list, warning{line, fold.AnomalyRun, fmt.Sprintf("%s names run %.100q; it is published to run %.100q, as the path says", what, run, t.run)})
	}
	return list
}

// look notes what of an event contradicts the path. Only the start and the end of a run name ids, so that nothing else is decoded.
func (p *publisher) look(ev eventstream.Event, of agui.Type) {
	if of != agui.RunStarted && of != agui.RunFinished || len(p.warnings) >= mostWarnings {
		return
	}
	decoded, err := agui.Decode(bytes.Clone(ev.Value)) // which may upgrade it
	if err != nil {
		return // it becomes a dead letter, which says why
	}
	list := p.target.compareIDs(ev.Line, string(of), decoded.ThreadID, decoded.RunID)
	p.warnings = append(p.warnings, list[:min(len(list), mostWarnings-len(p.warnings))]...)
}

package ingest

import (
	"bytes"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/fold"
)

// mostWarnings is the limit of warnings in a response.
const mostWarnings = 16

// warning describes an accepted event or input that the run will count as an anomaly.
type warning struct {
	// Line is the line of the body on which the event begins; absent for an input.
	Line    int64  `json:"line,omitempty"`
	Anomaly string `json:"anomaly"`
	Detail  string `json:"detail"`
}

// compareIDs returns warnings for ids in a payload that contradict the path. An empty id contradicts nothing.
func (t target) compareIDs(line int64, what, thread, run string) (list []warning) {
	if thread != "" && thread != t.thread {
		list = append(list, warning{line, fold.AnomalyThread, fmt.Sprintf("%s names thread %.100q; it is published to thread %.100q, as the path says", what, thread, t.thread)})
	}
	if run != "" && run != t.run {
		list = append(list, warning{line, fold.AnomalyRun, fmt.Sprintf("%s names run %.100q; it is published to run %.100q, as the path says", what, run, t.run)})
	}
	return list
}

// look adds warnings if an event's ids contradict the path. It decodes only the start and the end of a run, because
// other events have no ids.
func (p *publisher) look(ev eventstream.Event, of agui.Type) {
	if of != agui.RunStarted && of != agui.RunFinished || len(p.warnings) >= mostWarnings {
		return
	}
	decoded, err := agui.Decode(bytes.Clone(ev.Value)) // a copy, because Decode may upgrade it in place
	if err != nil {
		return // the compactor writes a dead letter with the reason
	}
	list := p.target.compareIDs(ev.Line, string(of), decoded.ThreadID, decoded.RunID)
	p.warnings = append(p.warnings, list[:min(len(list), mostWarnings-len(p.warnings))]...)
}

package ingest

import (
	"errors"
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
)

const (
	// mostWarnings is the limit of warnings in a response.
	mostWarnings = 16
	// mostReasons is how many of them are kept for events that cannot be folded.
	mostReasons = 3
)

// warning describes an accepted event or input that the run will count as an anomaly, or an event of an unknown type.
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

// look adds warnings about an event that cannot be folded, or whose ids contradict the path.
func (p *publisher) look(line int64, e *agui.Event, unreadable error) {
	var list []warning
	most := mostWarnings - mostReasons
	switch {
	case unreadable != nil:
		if p.unreadable++; p.unreadable <= mostReasons {
			anomaly := fold.AnomalyMalformed
			if bad := new(agui.MalformedError); errors.As(unreadable, &bad) && bad.Rule == agui.RuleUnknownType {
				anomaly = bad.Rule
			}
			list, most = []warning{{line, anomaly, unreadable.Error()}}, mostWarnings
		}
	case e.Type == agui.RunStarted || e.Type == agui.RunFinished: // other events have no ids
		list = p.target.compareIDs(line, string(e.Type), e.ThreadID, e.RunID)
	}
	p.warnings = append(p.warnings, list[:min(len(list), max(0, most-len(p.warnings)))]...)
}

package fold

import (
	"maps"

	"github.com/skeinhq/skein/pkg/record"
)

// Producer is the agent, the labels and the trace context of a run, from the headers of all its records, including those
// that are not folded. The first agent, the first trace context and the first value of each label count, up to
// record.MaxLabels labels. They do not change while the run is open, even if another producer sends the rest of it.
type Producer struct {
	Agent, Traceparent string
	// Labels is nil if there are none. It is replaced, never modified in place.
	Labels map[string]string

	// last are the labels of the previous record. The next record usually has the same ones, in the same slice
	// (record.ParseHeadersLike).
	last []record.Label
}

// Take adds the headers of the run's next record.
func (p *Producer) Take(h *record.Headers) {
	if p.Agent == "" {
		p.Agent = h.Agent
	}
	if p.Traceparent == "" {
		p.Traceparent = h.Traceparent
	}
	if len(h.Labels) == 0 || len(h.Labels) == len(p.last) && &h.Labels[0] == &p.last[0] {
		return
	}
	p.last = h.Labels
	var more map[string]string
	for _, l := range h.Labels {
		if _, has := p.Labels[l.Key]; has || len(p.Labels)+len(more) >= record.MaxLabels {
			continue
		}
		if more == nil {
			more = map[string]string{}
		}
		more[l.Key] = l.Value
	}
	if more != nil {
		maps.Copy(more, p.Labels)
		p.Labels = more
	}
}

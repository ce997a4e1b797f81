package fold

import (
	"maps"

	"github.com/skeinhq/skein/pkg/record"
)

// Producer is what the records of a run say of who produced it. The first agent that is named stands, and of each label the first
// value, up to record.MaxLabels labels: what a run is called does not change while it goes on, whatever sends the rest of it. All
// of a run's records say it, also those of which nothing is folded.
type Producer struct {
	Agent string
	// Labels is nil where there are none. It is not changed later, but replaced.
	Labels map[string]string

	// last are the labels of the record before, which are mostly those of the next one, in the same slice (record.ParseHeadersLike).
	last []record.Label
}

// Take takes in the headers of the run's next record.
func (p *Producer) Take(h record.Headers) {
	if p.Agent == "" {
		p.Agent = h.Agent
	}
	if len(h.Labels) == 0 || len(h.Labels) == len(p.last) && &h.Labels[0] == &p.last[0] {
		return
	}
	p.last = h.Labels
	var more map[string]string
	for _, l := range h.Labels {
		if _, said := p.Labels[l.Key]; said || len(p.Labels)+len(more) >= record.MaxLabels {
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

package ingest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
)

// The headers of a request that say who produces the run.
const (
	headerAgent       = "Skein-Agent"
	headerLabelPrefix = "Skein-Label-"
)

// producer is what a request's records say of who produces their run: nothing, where it is zero.
type producer struct {
	agent  string
	labels []record.Label
}

// producerOf reads it from a request's headers. The names of HTTP's headers know no case, so labels that come with them have keys
// in lower case; they are in the order of their keys, so that the records of all requests of a run say them alike. On Kafka what
// cannot be a label is passed over, since nobody is there to be told; here it is refused.
func producerOf(header http.Header) (producer, *rejection) {
	var p producer
	if v := header.Values(headerAgent); len(v) > 0 {
		if p.agent = v[len(v)-1]; !record.ValidAgent(p.agent) {
			return producer{}, badLine(reasonHeader, 0, "%s must be 1 to %d bytes of UTF-8", headerAgent, record.MaxAgentBytes)
		}
	}
	for name, values := range header {
		key, ok := strings.CutPrefix(name, headerLabelPrefix)
		if !ok {
			continue
		}
		l := record.Label{Key: strings.ToLower(key), Value: values[len(values)-1]}
		if !l.Valid() {
			return producer{}, badLine(reasonHeader, 0, "%s…: key and value of a label are up to %d bytes of UTF-8, the key at least one", headerLabelPrefix, record.MaxLabelBytes)
		}
		p.labels = append(p.labels, l)
	}
	if len(p.labels) > record.MaxLabels {
		return producer{}, badLine(reasonHeader, 0, "there are %d headers %s…: a run has up to %d labels", len(p.labels), headerLabelPrefix, record.MaxLabels)
	}
	slices.SortFunc(p.labels, func(a, b record.Label) int { return strings.Compare(a.Key, b.Key) })
	return p, nil
}

package ingest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/skeinhq/skein/pkg/record"
)

// Request headers that name the run's producer and its labels.
const (
	headerAgent       = "Skein-Agent"
	headerLabelPrefix = "Skein-Label-"
)

// producer has the agent, the labels and the trace context in the headers of a request's records. The zero value has none.
type producer struct {
	agent       string
	labels      []record.Label
	traceparent string
}

// producerOf reads the producer from a request's headers. HTTP header names are case-insensitive, so label keys are
// lower case. Labels are sorted by key, so that all requests of a run write equal headers. An invalid label is an error
// here, but readers of Kafka records ignore it, since they have no caller to answer. An invalid trace context is ignored, as W3C has it.
func producerOf(header http.Header) (producer, error) {
	p := producer{traceparent: record.Traceparent(header.Get(record.HeaderTraceparent))}
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
		return producer{}, badLine(reasonHeader, 0, "there are %d headers %s…: a run has up to %d labels", len(p.labels), headerLabelPrefix,
			record.MaxLabels)
	}
	slices.SortFunc(p.labels, func(a, b record.Label) int { return strings.Compare(a.Key, b.Key) })
	return p, nil
}

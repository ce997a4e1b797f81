package fold_test

import (
	"maps"
	"testing"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

func TestProducer_KeepsWhatWasSaidFirst(t *testing.T) {
	var p fold.Producer
	p.Take(&record.Headers{})
	p.Take(&record.Headers{Labels: []record.Label{{Key: "a", Value: "1"}}})
	before := p.Labels
	p.Take(&record.Headers{Agent: "shop", Labels: []record.Label{{Key: "a", Value: "2"}, {Key: "b", Value: ""}}})
	p.Take(&record.Headers{Agent: "another", Traceparent: "00-1"})
	p.Take(&record.Headers{Traceparent: "00-2"})
	if want := map[string]string{"a": "1", "b": ""}; p.Agent != "shop" || !maps.Equal(p.Labels, want) || p.Traceparent != "00-1" {
		t.Errorf("producer is %q %v %q, want shop %v and 00-1", p.Agent, p.Labels, p.Traceparent, want)
	}
	if len(before) != 1 {
		t.Errorf("labels that were given out became %v", before)
	}
}

func TestProducer_CostsNothingOnceItIsKnown(t *testing.T) {
	h := record.Headers{Agent: "shop", Labels: []record.Label{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}}
	var p fold.Producer
	p.Take(&h)
	if n := testing.AllocsPerRun(100, func() { p.Take(&h) }); n != 0 {
		t.Errorf("it makes %v things for a record that says the same", n)
	}
}

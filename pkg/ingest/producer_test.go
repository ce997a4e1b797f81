package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestProducer_RecordsSayTheAgentAndItsLabels(t *testing.T) {
	shared := newStage(t)
	says := []string{"Skein-Agent", "shop 🧶", "skein-label-USER", "7", "Skein-Label-Env.Name", "", "traceparent",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	want := record.Headers{Version: 1, RunID: "r1", Agent: "shop 🧶", Labels: []record.Label{{Key: "env.name"}, {Key: "user", Value: "7"}},
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	for name, c := range map[string]struct {
		method, call, contentType, body string
		kind                            record.Kind
		seqs                            []int64
	}{
		"events":          {http.MethodPost, "events", typeNDJSON, ev1 + "\n" + ev2, record.KindEvent, []int64{-1, -1}},
		"numbered events": {http.MethodPost, "events", typeSequenced, `{"seq":3,"event":` + ev1 + "}\n" + `{"seq":4,"event":` + ev2 + "}", record.KindEvent, []int64{3, 4}},
		"an input":        {http.MethodPut, "input", typeJSON, input1, record.KindInput, []int64{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := shared.in(t, name)
			if a := d.do(c.method, d.path(c.call), strings.NewReader(c.body),
				append([]string{"Content-Type", c.contentType}, says...)...); a.status != http.StatusOK {
				t.Fatalf("answer is %d %s", a.status, a.body)
			}
			rs := d.records()
			if len(rs) != len(c.seqs) {
				t.Fatalf("there are %d records", len(rs))
			}
			for i, r := range rs {
				h, err := record.ParseHeaders(r.Headers)
				want := want
				want.Kind, want.Seq = c.kind, c.seqs[i]
				if err != nil || !h.Equal(want) {
					t.Errorf("headers are %+v, %v; want %+v", h, err, want)
				}
			}
		})
	}
}

// As W3C has it, a request with an invalid trace context is one without.
func TestProducer_IgnoresATraceparentThatIsNone(t *testing.T) {
	d := newStage(t)
	for _, value := range []string{"", "none", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"} {
		if a := d.do(http.MethodPost, d.path("events"), strings.NewReader(ev1), "Content-Type", typeNDJSON, "traceparent",
			value); a.status != http.StatusOK {
			t.Errorf("%q: answer is %d %s", value, a.status, a.body)
		}
	}
	for _, r := range d.records() {
		if h, err := record.ParseHeaders(r.Headers); err != nil || h.Traceparent != "" || len(r.Headers) != 3 {
			t.Errorf("headers are %+v, %v", r.Headers, err)
		}
	}
}

func TestProducer_RefusesWhatCannotBeSaid(t *testing.T) {
	shared := newStage(t)
	many := make([]string, 0, 34)
	for i := range 17 {
		many = append(many, fmt.Sprintf("Skein-Label-%d", i), "x")
	}
	for name, says := range map[string][]string{
		"no agent":                 {"Skein-Agent", ""},
		"an agent of 513 bytes":    {"Skein-Agent", strings.Repeat("a", 513)},
		"an agent that is no text": {"Skein-Agent", "\xe9"},
		"a label without a key":    {"Skein-Label-", "x"},
		"a key of 257 bytes":       {"Skein-Label-" + strings.Repeat("a", 257), "x"},
		"a value of 257 bytes":     {"Skein-Label-A", strings.Repeat("a", 257)},
		"17 labels":                many,
	} {
		t.Run(name, func(t *testing.T) {
			d := shared.in(t, name)
			for call, method := range map[string]string{"events": http.MethodPost, "input": http.MethodPut} {
				body := map[string]string{"events": ev1, "input": input1}[call]
				if a := d.do(method, d.path(call), strings.NewReader(body), says...); a.status != http.StatusBadRequest ||
					a.Reason != "invalid-header" {
					t.Errorf("%s: answer is %d %s, want 400 invalid-header", call, a.status, a.body)
				}
			}
			if got := d.written(); len(got) != 0 {
				t.Errorf("written is %q, want nothing", got)
			}
		})
	}
}

package ingest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// BenchmarkIngest publishes bodies of 10,000 events of 150 bytes through HTTP to kfake in the same
// process, so the number is that of client, stage and broker together.
func BenchmarkIngest(b *testing.B) {
	const n = 10_000
	event := func(i int) string {
		return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"0b9f6a8e-3f4d-4c0e-9a53-6c1f6f1c2a77","delta":" word%06d of a message","timestamp":%d}`, i, 1758110400000+i)
	}
	events := make([]string, n)
	for i := range events {
		events[i] = event(i)
	}
	for _, form := range []struct{ name, mediaType, body string }{
		{"ndjson", typeNDJSON, strings.Join(events, "\n")},
		{"array", typeJSON, "[" + strings.Join(events, ",") + "]"},
		{"sse", typeSSE, "data: " + strings.Join(events, "\n\ndata: ") + "\n\n"},
		{"ndjson-signed", typeNDJSON, strings.Join(events, "\n")},
	} {
		b.Run(form.name, func(b *testing.B) {
			cfg := DefaultConfig(kafkatest.Start(b, 4))
			if form.name == "ndjson-signed" {
				cfg.Kafka.IngestKeys = ingestKeys(b)
			}
			d := open(b, cfg)
			b.SetBytes(int64(len(form.body)))
			b.ReportAllocs()
			for b.Loop() {
				if a := d.post(form.mediaType, form.body); a.status != http.StatusOK || a.Accepted != n {
					b.Fatalf("answer is %d %s", a.status, a.body)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkIngest_OneEvent is the time that a caller waits for one acknowledged event.
func BenchmarkIngest_OneEvent(b *testing.B) {
	d := open(b, DefaultConfig(kafkatest.Start(b, 4)))
	for b.Loop() {
		if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
			b.Fatalf("answer is %d %s", a.status, a.body)
		}
	}
}

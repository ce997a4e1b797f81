package kafkatest

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
)

// readAll reads a topic from its start to its last stable offsets. The records are sorted by partition and offset.
func readAll(ctx context.Context, cfg kafka.Config, topic string) ([]*kgo.Record, error) {
	cfg.Registerer = nil
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	asking, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	spans, err := kafka.Spans(asking, adm, topic)
	if err != nil {
		return nil, err
	}
	var out []*kgo.Record
	for r, err := range kafka.Scan(ctx, cfg, topic, spans) {
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return out, nil
}

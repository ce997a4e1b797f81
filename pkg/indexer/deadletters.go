package indexer

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// writeDeadLetters writes dead letters for refused entries and returns after the brokers have acknowledged them. After a crash before
// the commit they are written again.
func (w *writer) writeDeadLetters(ctx context.Context, all []refused) error {
	if len(all) == 0 {
		return nil
	}
	if w.deadLetters == nil {
		cl, err := kafka.NewProducer(w.cfg.Kafka)
		if err != nil {
			return fmt.Errorf("writing dead letters: %w", err)
		}
		w.deadLetters = cl
	}
	records := make([]*kgo.Record, 0, len(all))
	for _, r := range all {
		m, err := deadLetter(r, w.cfg.Kafka.Topics().DeadLetters)
		if err != nil {
			return err
		}
		records = append(records, m)
	}
	if err := w.deadLetters.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("writing dead letters: %w", err)
	}
	w.metrics.refused.Add(float64(len(all)))
	for i, r := range all {
		// The reason is not logged, as it may quote the row; the dead letter has it.
		w.cfg.Logger.WarnContext(ctx, "run refused by the store, and written to the dead letters",
			"topic", w.cfg.Kafka.Topics().Runs, "partition", r.Partition, "offset", r.Version,
			"dead_letter", record.Position{Partition: records[i].Partition, Offset: records[i].Offset}.String())
	}
	return nil
}

// deadLetterRoom limits the size of a dead letter's key, its headers and the batch's frame together, in bytes.
const deadLetterRoom = 8 << 10

// maxDetail bounds the store's reason in a dead letter, in bytes.
const maxDetail = 512

// deadLetter returns the dead letter of a refused run: its record, with the position of the run's first event.
func deadLetter(r refused, topic string) (*kgo.Record, error) {
	key, err := record.ThreadKey(r.Tenant, r.ThreadID)
	if err != nil {
		return nil, fmt.Errorf("making dead letter: %w", err)
	}
	value, err := record.EncodeRun(r.Run)
	if err != nil {
		return nil, fmt.Errorf("making dead letter: %w", err)
	}
	if len(value) > kafka.MaxBatchBytes-deadLetterRoom {
		value = fmt.Appendf(nil, `{"bytes":%d,"sha256":%q}`, len(value), record.SHA256(value))
	}
	detail := fmt.Sprintf("record %d:%d of skein.runs: %v", r.Partition, r.Version, r.reason)
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	at := record.Position{Partition: r.Run.Raw.Partition, Offset: r.Run.Raw.First}
	return &kgo.Record{
		Topic: topic, Partition: r.Partition, Key: []byte(key), Value: value,
		Headers: append(kafka.Headers(record.Headers{Kind: record.KindRun, RunID: r.RunID, Seq: -1}),
			kgo.RecordHeader{Key: record.HeaderReason, Value: []byte(deadletter.Refused)},
			kgo.RecordHeader{Key: record.HeaderPosition, Value: []byte(at.String())},
			kgo.RecordHeader{Key: record.HeaderDetail, Value: []byte(detail)}),
	}, nil
}

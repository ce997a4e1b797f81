package replay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// HeaderReplayedFrom is the header with the Position of the original record in skein.events. Every replayed record has
// it, and no record of a topic set does.
const HeaderReplayedFrom = "skein-replayed-from"

// Options select what to replay, and how.
type Options struct {
	Query
	// To is the target topic. It must exist, outside of any topic set.
	To string
	// Headers are the names of headers to copy besides those that describe an event and its producer
	// (record.SaidByProducer).
	Headers []string
	Pace    Pace
	// Follow continues with events after the range until the context ends.
	Follow bool
	// Progress is called as records are read or published; nil disables it.
	Progress func(what string, done, total int)
}

// scanTold is the number of records between two calls of Progress.
const scanTold = 1000

// askTimeout bounds one round of requests to the brokers.
const askTimeout = 30 * time.Second

// Plan is what a replay will publish. Its fields are the JSON of skein replay --to.
type Plan struct {
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	Records    int    `json:"records"`
	// Bytes is the size of keys and values.
	Bytes int64 `json:"bytes"`
	// Ranges are the offsets of the records in skein.events, one range per partition. To is the offset after the last one.
	Ranges []Range `json:"ranges"`
	// FirstAt and LastAt are the times of the first record and of the last.
	FirstAt *time.Time `json:"firstAt,omitempty"`
	LastAt  *time.Time `json:"lastAt,omitempty"`
	// Types counts the events by type. Inputs and Malformed count the records that are no event.
	Types     map[string]int `json:"types"`
	Inputs    int            `json:"inputs"`
	Malformed int            `json:"malformed"`
	// Headers is the number of records with each header that is copied, LeftOut with each that is not.
	Headers map[string]int `json:"headers"`
	LeftOut map[string]int `json:"leftOut"`
	// TooLarge is the number of records larger than the topic accepts; the first of them will end the replay.
	TooLarge int `json:"tooLarge"`
	// Erased is the number of records that are left out because their thread was erased.
	Erased int `json:"erased"`

	// most is the largest batch that the topic accepts, in bytes.
	most      int32
	cfg       kafka.Config
	options   Options
	selection *selection
	spans     map[int32]kafka.Span
	// ends are the ends of the partitions of skein.events at the time of the plan.
	ends map[int32]int64
}

// Range is a range of offsets of one partition.
type Range struct {
	From    record.Position `json:"from"`
	To      record.Position `json:"to"`
	Records int             `json:"records"`
}

// NewPlan reads the selected records and returns what Run will publish. It writes nothing. The error is ErrTopicSet,
// ErrGone, ErrNoRun, ErrQuery, or that of a request.
func NewPlan(ctx context.Context, cfg kafka.Config, o Options) (*Plan, error) {
	if kafka.InTopicSet(o.To) {
		return nil, fmt.Errorf("replaying to %s: %w", o.To, ErrTopicSet)
	}
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	s, err := newSelection(o.Query)
	if err != nil {
		return nil, err
	}
	p := &Plan{Topic: o.To, cfg: cfg, options: o, selection: s, Ranges: []Range{}, Types: map[string]int{}, Headers: map[string]int{},
		LeftOut: map[string]int{}}
	runs, err := p.ask(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.records(ctx, cfg, runs, func(done, total int) { o.Progress("looking for erasures", done, total) }); err != nil {
		return nil, err
	}
	if err := p.lookForErasures(ctx); err != nil {
		return nil, err
	}
	return p, p.count(ctx)
}

// ask requests the topics and their offsets from the brokers. It returns the spans of skein.runs that the selection may
// need.
func (p *Plan) ask(ctx context.Context) (runs map[int32]kafka.Span, err error) {
	adm, err := kafka.NewAdmin(p.cfg)
	if err != nil {
		return nil, err
	}
	defer adm.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	topics := p.cfg.Topics()
	// A thread's partition depends on the partition count. PartitionCount fails if the count differs between topics.
	if _, err := kafka.PartitionCount(ctx, adm, topics); err != nil {
		return nil, err
	}
	details, err := adm.ListTopicsWithInternal(ctx, p.Topic)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", p.Topic, err)
	}
	to := details[p.Topic]
	switch {
	case errors.Is(to.Err, kerr.UnknownTopicOrPartition) || to.Err == nil && len(to.Partitions) == 0:
		return nil, fmt.Errorf("replaying to %s: %w: make it first", p.Topic, kafka.ErrNoTopic)
	case to.Err != nil:
		return nil, fmt.Errorf("asking for %s: %w", p.Topic, to.Err)
	case to.IsInternal || strings.HasPrefix(p.Topic, "__"):
		return nil, fmt.Errorf("%w: %s is Kafka's own topic", ErrQuery, p.Topic)
	}
	p.Partitions = int32(len(to.Partitions))
	if p.most, err = batchLimit(ctx, adm, p.Topic); err != nil {
		return nil, err
	}
	if p.spans, err = p.selection.spans(ctx, adm, topics.Events); err != nil {
		return nil, err
	}
	p.ends = map[int32]int64{}
	for partition, span := range p.spans {
		p.ends[partition] = span.End
	}
	return p.selected(ctx, adm, topics.Runs)
}

// selected returns the current spans of those partitions of a topic that the selection needs.
func (p *Plan) selected(ctx context.Context, adm *kadm.Client, topic string) (map[int32]kafka.Span, error) {
	spans, err := kafka.Spans(ctx, adm, topic)
	maps.DeleteFunc(spans, func(partition int32, _ kafka.Span) bool { _, ok := p.spans[partition]; return !ok })
	return spans, err
}

// batchLimit returns the largest batch that a topic accepts.
func batchLimit(ctx context.Context, adm *kadm.Client, topic string) (int32, error) {
	const setting = "max.message.bytes"
	settings, err := kafka.TopicSettings(ctx, adm, topic)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(settings[topic][setting], 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("reading settings of topic %s: it has no %s", topic, setting)
	}
	return int32(min(n, kafka.MaxBatchBytes)), nil
}

// count reads the selected records.
func (p *Plan) count(ctx context.Context) error {
	total, done := 0, 0
	for _, span := range p.spans {
		total += int(max(0, span.End-span.Start))
	}
	ranges := map[int32]*Range{}
	for m, err := range kafka.Scan(ctx, p.cfg, p.cfg.Topics().Events, p.spans) {
		if err != nil {
			return err
		}
		if done++; done%scanTold == 0 || done == total {
			p.options.Progress("counting events", done, total)
		}
		taken, erased, err := p.selection.takes(m)
		switch {
		case err != nil:
			return err
		case erased:
			p.Erased++
		case taken:
			r := ranges[m.Partition]
			if r == nil {
				r = &Range{From: record.Position{Partition: m.Partition, Offset: m.Offset}}
				ranges[m.Partition] = r
			}
			r.To = record.Position{Partition: m.Partition, Offset: m.Offset + 1}
			r.Records++
			p.add(m)
		}
	}
	for _, partition := range slices.Sorted(maps.Keys(ranges)) {
		p.Ranges = append(p.Ranges, *ranges[partition])
	}
	return nil
}

func (p *Plan) add(m *kgo.Record) {
	p.Records++
	p.Bytes += int64(len(m.Key) + len(m.Value))
	if at := m.Timestamp; p.FirstAt == nil || at.Before(*p.FirstAt) {
		p.FirstAt = &at
	}
	if at := m.Timestamp; p.LastAt == nil || at.After(*p.LastAt) {
		p.LastAt = &at
	}
	switch d := &p.selection.decoded; {
	case d.Headers.Kind == record.KindInput:
		p.Inputs++
	case d.Malformed() != nil:
		p.Malformed++
	default:
		p.Types[string(d.Payload().Type)]++
	}
	if size(p.replayed(m)) > int(p.most) {
		p.TooLarge++
	}
	for _, h := range m.Headers {
		if p.options.copies(h.Key) {
			p.Headers[h.Key]++
		} else {
			p.LeftOut[h.Key]++
		}
	}
}

// size returns a lower bound of a record's size in a batch of its own, uncompressed.
func size(m *kgo.Record) int {
	const frame, lengths = 61, 24
	n := frame + lengths + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value) + 4
	}
	return n
}

// copies reports whether a header is copied.
func (o *Options) copies(name string) bool {
	return name != HeaderReplayedFrom && (record.SaidByProducer(name) || slices.Contains(o.Headers, name))
}

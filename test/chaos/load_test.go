package chaos_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	tenant = "chaos"
	// slots is the number of threads that go on at a time, with up to two runs open in each.
	slots = 64
	// threadRuns is how many runs a thread has before another one takes its slot.
	threadRuns = 10
	// rate is in events a second: a run lasts for some 20 s, longer than a checkpoint and a session.
	rate = 300
)

// load writes runs and remembers what it wrote.
type load struct {
	client     *kgo.Client
	topic      string
	partitions int32
	rng        *rand.Rand

	threads []*thread
	made    int // threads
	planted int

	// sent is the number of records.
	sent int
	// runs are by record key.
	runs map[string]*truth
	// letters are the records that belong into dead letters: reasons by value. Each value is sent once.
	letters map[string]string
	// open is the number of runs that have begun and not ended.
	open atomic.Int64

	mu     sync.Mutex
	failed error
}

// truth is what the load knows of a run.
type truth struct {
	sum    hash.Hash
	events int64
	ended  bool
}

func (t *truth) sha256() string { return hex.EncodeToString(t.sum.Sum(nil)) }

type thread struct {
	id   string
	runs int
	open []*openRun
	// ended are the ids of ended runs, said the conversation as a client would send it.
	ended, said []string
}

type openRun struct {
	id    string
	truth *truth
	left  int
	// seq is the next number, -1 where the run's events are not numbered.
	seq      int64
	messages int
}

func newLoad(cfg kafka.Config, partitions int32, rng *rand.Rand) (*load, error) {
	// The brokers are down again and again; nothing that was handed over may be given up.
	client, err := kafka.NewProducer(cfg, kgo.RecordDeliveryTimeout(time.Hour))
	if err != nil {
		return nil, err
	}
	l := &load{
		client: client, topic: cfg.Topics().Events, partitions: partitions, rng: rng,
		runs: map[string]*truth{}, letters: map[string]string{},
	}
	for range slots {
		l.threads = append(l.threads, l.newThread())
	}
	return l, nil
}

func (l *load) newThread() *thread {
	l.made++
	return &thread{id: "thread " + strconv.Itoa(l.made)}
}

// run writes at the rate until stop is closed; then it ends most of the runs that are open and waits
// until Kafka has acknowledged all.
func (l *load) run(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for running := true; running; {
		for l.sent < int(time.Since(began).Seconds()*rate) {
			if err := l.step(ctx); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-stop:
			running = false
		}
	}
	for _, t := range l.threads {
		for _, r := range t.open {
			if l.rng.IntN(10) == 0 {
				continue // never ends
			}
			if err := l.end(ctx, t, r); err != nil {
				return err
			}
		}
	}
	if err := l.client.Flush(ctx); err != nil {
		return fmt.Errorf("writing load: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// step writes the next event of any thread.
func (l *load) step(ctx context.Context) error {
	i := l.rng.IntN(len(l.threads))
	t := l.threads[i]
	switch {
	case t.runs == threadRuns && len(t.open) == 0:
		l.threads[i] = l.newThread()
		return nil
	case t.runs < threadRuns && len(t.open) < 1+l.rng.IntN(2):
		return l.begin(ctx, t)
	case len(t.open) == 0:
		return nil
	}
	n := l.rng.IntN(len(t.open))
	r := t.open[n]
	if r.left--; r.left > 0 {
		return l.say(ctx, t, r)
	}
	t.open = append(t.open[:n], t.open[n+1:]...)
	return l.end(ctx, t, r)
}

// begin starts a run: with an input that continues or forks the conversation, with a parent that is
// named, or with nothing.
func (l *load) begin(ctx context.Context, t *thread) error {
	t.runs++
	r := &openRun{id: fmt.Sprintf("%s run %d", t.id, t.runs), truth: &truth{sum: sha256.New()}, left: 20 + l.rng.IntN(60), seq: -1}
	if l.rng.IntN(2) == 0 {
		r.seq = 0
	}
	key, err := record.RunKey(tenant, t.id, r.id)
	if err != nil {
		return fmt.Errorf("writing load: %w", err)
	}
	l.runs[key] = r.truth
	parent := ""
	if len(t.ended) > 0 && l.rng.IntN(4) == 0 {
		parent = fmt.Sprintf(`,"parentRunId":%q`, t.ended[l.rng.IntN(len(t.ended))])
	}
	if l.rng.IntN(2) == 0 {
		said := t.said
		if len(said) > 0 && l.rng.IntN(4) == 0 {
			said = said[:l.rng.IntN(len(said))]
		}
		question := fmt.Sprintf(`{"id":"question of %s","role":"user","content":%q}`, r.id, l.words())
		messages := strings.Join(append(append([]string(nil), said...), question), ",")
		t.said = append(t.said, question)
		input := fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[%s],"state":{"turn":%d},"tools":[],"context":[]%s}`, t.id, r.id, messages, t.runs, parent)
		if err := l.send(ctx, t, record.KindInput, r.id, input, -1); err != nil {
			return err
		}
	}
	l.open.Add(1)
	t.open = append(t.open, r)
	return l.event(ctx, t, r, fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q%s,"timestamp":%d}`, t.id, r.id, parent, time.Now().UnixMilli()))
}

// say writes one event of a run, and now and then one that must become a dead letter, or one twice.
func (l *load) say(ctx context.Context, t *thread, r *openRun) error {
	if l.rng.IntN(100) == 0 {
		return l.plant(ctx, t, r)
	}
	message := fmt.Sprintf("message %d of %s", r.messages, r.id)
	call := fmt.Sprintf("call %d of %s", r.messages, r.id)
	var value string
	switch l.rng.IntN(14) {
	case 0:
		value = fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/k%d","value":%q}]}`, l.rng.IntN(5), l.words())
	case 1:
		value = fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"of":%q,"list":[1,2,{"n":%d}]}}`, r.id, l.rng.IntN(9))
	case 2:
		value = fmt.Sprintf(`{"type":"CUSTOM","name":"progress","value":{"left":%d}}`, r.left)
	case 3:
		value = fmt.Sprintf(`{"type":"STEP_STARTED","stepName":%q}`, l.words())
	case 4:
		value = fmt.Sprintf(`{"type":"TOOL_CALL_CHUNK","toolCallId":%q,"toolCallName":"search","parentMessageId":%q,"delta":"{}"}`, call, message)
	case 5:
		value = fmt.Sprintf(`{"type":"TOOL_CALL_RESULT","messageId":%q,"toolCallId":%q,"content":%q}`, "result of "+call, call, l.words())
	case 6:
		value = fmt.Sprintf(`{"type":"ACTIVITY_SNAPSHOT","messageId":"plan of %s","activityType":"plan","content":{"left":%d}}`, r.id, r.left)
	case 7:
		r.messages++
		fallthrough
	default:
		value = fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":%q,"role":"assistant","delta":%q,"timestamp":%d}`, message, l.words(), time.Now().UnixMilli())
	}
	seq := r.seq
	if err := l.event(ctx, t, r, value); err != nil || seq < 0 || l.rng.IntN(50) > 0 {
		return err
	}
	return l.send(ctx, t, record.KindEvent, r.id, value, seq) // a repeat
}

// plant writes what belongs into dead letters.
func (l *load) plant(ctx context.Context, t *thread, r *openRun) error {
	l.planted++
	switch l.rng.IntN(3) {
	case 0:
		value := fmt.Sprintf(`{"type":"CUSTOM","name":"cut off %d`, l.planted)
		l.letters[value] = "malformed"
		return l.send(ctx, t, record.KindEvent, r.id, value, -1)
	case 1:
		value := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":%d}`, l.planted)
		l.letters[value] = "malformed"
		return l.send(ctx, t, record.KindEvent, r.id, value, -1)
	default:
		value := fmt.Sprintf(`{"type":"CUSTOM","name":"of no run","value":%d}`, l.planted)
		l.letters[value] = "no-run"
		return l.send(ctx, &thread{id: "lone " + strconv.Itoa(l.planted)}, record.KindEvent, "", value, -1)
	}
}

// end writes a run's last event, and now and then one behind it.
func (l *load) end(ctx context.Context, t *thread, r *openRun) error {
	value := fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, t.id, r.id)
	if l.rng.IntN(8) == 0 {
		value = fmt.Sprintf(`{"type":"RUN_ERROR","message":%q}`, l.words())
	}
	if err := l.event(ctx, t, r, value); err != nil {
		return err
	}
	r.truth.ended = true
	l.open.Add(-1)
	t.ended = append(t.ended, r.id)
	t.said = append(t.said, fmt.Sprintf(`{"id":"message 0 of %s","role":"assistant","content":"as it was"}`, r.id))
	if l.rng.IntN(20) > 0 {
		return nil
	}
	l.planted++
	late := fmt.Sprintf(`{"type":"CUSTOM","name":"late","value":%d}`, l.planted)
	l.letters[late] = "after-terminal"
	return l.send(ctx, t, record.KindEvent, r.id, late, -1)
}

// event writes an event that is folded.
func (l *load) event(ctx context.Context, t *thread, r *openRun, value string) error {
	r.truth.sum.Write(append([]byte(value), '\n'))
	r.truth.events++
	seq := r.seq
	if seq >= 0 {
		r.seq++
	}
	return l.send(ctx, t, record.KindEvent, r.id, value, seq)
}

func (l *load) send(ctx context.Context, t *thread, kind record.Kind, run, value string, seq int64) error {
	key, err := record.ThreadKey(tenant, t.id)
	if err != nil {
		return fmt.Errorf("writing load: %w", err)
	}
	l.sent++
	l.client.Produce(ctx, &kgo.Record{
		Topic: l.topic, Partition: record.Partition([]byte(key), l.partitions), Key: []byte(key), Value: []byte(value),
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: seq}),
	}, func(_ *kgo.Record, err error) {
		if err != nil {
			l.mu.Lock()
			l.failed = fmt.Errorf("writing load: %w", err)
			l.mu.Unlock()
		}
	})
	return nil
}

func (l *load) words() string {
	const text = "the quick brown fox jumps over the lazy dog while nobody looks, "
	from := l.rng.IntN(len(text) - 20)
	return text[from : from+8+l.rng.IntN(len(text)-from-8)]
}

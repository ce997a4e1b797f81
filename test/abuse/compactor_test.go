package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// pipeline is a compactor, an indexer and a query stage. Its tenants write to Kafka themselves, so ingest's limits do not protect the
// stages.
type pipeline struct {
	*Site
	producer                  *kgo.Client
	compactor, indexer, query *Stage
	args                      []string // of the compactor
	settled                   int      // calls of settle
}

// startPipeline starts one, with the flags of a lineage store or, without flags, on SQLite.
func startPipeline(t *testing.T, store ...string) *pipeline {
	t.Helper()
	return pipelineOf(t, NewSite(t), store...)
}

func pipelineOf(t *testing.T, s *Site, store ...string) *pipeline {
	t.Helper()
	p := &pipeline{Site: s}
	if len(store) == 0 {
		store = []string{"--sqlite", filepath.Join(p.Dir, "index.db")}
	}
	migrate := exec.CommandContext(t.Context(), filepath.Join(Bin, "skein"), append([]string{"migrate"}, store...)...)
	migrate.Env = process.Environment()
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("skein migrate: %v: %s", err, out)
	}
	var err error
	if p.producer, err = kafka.NewProducer(p.Kafka); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.producer.Close)
	p.args = []string{"--dir", filepath.Join(p.Dir, "compactor"), "--instance-id", "one"}
	p.compactor = p.Start("compactor", p.args...)
	p.indexer = p.Start("indexer", store...)
	p.query = p.Start("query", store...)
	return p
}

// The hostile tenant's threads lie on the first two partitions, the honest one's on the others: Kafka keeps the order of a partition.
var hostilePartitions, honestPartitions = []int32{0, 1}, []int32{2, 3}

// threadsOn returns n thread ids of a tenant on some partitions.
func threadsOn(tenant, prefix string, n int, partitions []int32) (threads []string) {
	for i := 0; len(threads) < n; i++ {
		id := prefix + fmt.Sprint(i)
		key, err := record.ThreadKey(tenant, id)
		if err != nil {
			panic(err) // the ids of this package are valid
		}
		if slices.Contains(partitions, record.Partition([]byte(key), Partitions)) {
			threads = append(threads, id)
		}
	}
	return threads
}

// message makes the Kafka record of an event or input.
func (p *pipeline) message(kind record.Kind, tenant, thread, run string, value []byte) *kgo.Record {
	key, err := record.ThreadKey(tenant, thread)
	if err != nil {
		p.TB.Fatal(err)
	}
	return &kgo.Record{
		Topic: p.Kafka.Topics().Events, Partition: record.Partition([]byte(key), Partitions), Key: []byte(key), Value: value,
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: -1}),
	}
}

// run makes the Kafka records of a run: RUN_STARTED, its events and RUN_FINISHED.
func (p *pipeline) run(tenant, thread, run string, events ...string) (records []*kgo.Record) {
	ids := fmt.Sprintf(`"threadId":%q,"runId":%q}`, thread, run)
	for _, e := range slices.Concat([]string{`{"type":"RUN_STARTED",` + ids}, events, []string{`{"type":"RUN_FINISHED",` + ids}) {
		records = append(records, p.message(record.KindEvent, tenant, thread, run, []byte(e)))
	}
	return records
}

// texts are events of n messages of a character.
func texts(n int) []string {
	events := make([]string, n)
	for i := range events {
		events[i] = fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d","role":"assistant","delta":"a"}`, i)
	}
	return events
}

// publish publishes records, a megabyte or one large record at a time; in the long form 10 MiB a second, as a quota of Kafka's would have
// it.
func (p *pipeline) publish(records []*kgo.Record) {
	p.TB.Helper()
	for len(records) > 0 {
		n, bytes := 1, len(records[0].Value)
		for ; n < len(records) && bytes < 1<<20; n++ {
			bytes += len(records[n].Value)
		}
		if err := p.producer.ProduceSync(p.TB.Context(), records[:n]...).FirstErr(); err != nil {
			p.TB.Fatal(err)
		}
		records = records[n:]
		time.Sleep(time.Duration(bytes) * time.Second / time.Duration(size(10<<20, 1<<40)))
	}
}

// seen waits until the history of a run can be read.
func (p *pipeline) seen(ctx context.Context, web *http.Client, who, thread, run string) error {
	for ctx.Err() == nil {
		resp, err := web.Do(p.Request(ctx, who, http.MethodGet, p.query.URL+"/v1/threads/"+thread+"/runs/"+run+"/history", nil))
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()                                                                                // only read
		behind := resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusServiceUnavailable // the index lacks the run so far
		if err != nil || resp.StatusCode != http.StatusOK && !behind {
			return fmt.Errorf("reading: %s %s (%w)", resp.Status, body, err)
		}
		if strings.Contains(string(body), `"status":"finished"`) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// settle waits until everything that was published so far can be read: a last run of the hostile tenant on each partition comes after it.
func (p *pipeline) settle() {
	p.TB.Helper()
	ctx, cancel := context.WithTimeout(p.TB.Context(), 10*time.Minute)
	defer cancel()
	p.settled++
	run := fmt.Sprint("settled-", p.settled)
	for i := range int32(Partitions) {
		thread := threadsOn(Hostile, "settle-", 1, []int32{i})[0]
		p.publish(p.run(Hostile, thread, run))
		if err := p.seen(ctx, p.Web(), Hostile, thread, run); err != nil || ctx.Err() != nil {
			p.TB.Fatal(errors.Join(err, ctx.Err()))
		}
	}
}

// turns returns the honest tenant's call: it publishes a short run and waits until its history can be read.
func (p *pipeline) turns() func(ctx context.Context, n int) error {
	threads := threadsOn(Honest, "thread-", 16, honestPartitions)
	web := p.Web()
	return func(ctx context.Context, n int) error {
		thread, run := threads[n%len(threads)], fmt.Sprint("run-", n)
		event := fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%s","role":"assistant","delta":"hello"}`, run)
		if err := p.producer.ProduceSync(ctx, p.run(Honest, thread, run, event)...).FirstErr(); err != nil {
			return fmt.Errorf("publishing: %w", err)
		}
		return p.seen(ctx, web, Honest, thread, run)
	}
}

// attack publishes the hostile tenant's records while the honest one is measured. With kill it then kills the compactor, starts it again
// and measures once more.
func (p *pipeline) attack(name string, records []*kgo.Record, kill bool) {
	p.TB.Helper()
	meter := Measure(p.TB, p.turns())
	meter.Next(p.TB, 20) // the first ones open what the later ones find open
	before := meter.Next(p.TB, size(100, 30))
	p.publish(records)
	p.settle()
	Hold(p.TB, name, before, meter.Next(p.TB, 20), "accepted", p.compactor, p.indexer)
	if kill {
		p.compactor.End(os.Kill)
		p.compactor = p.Start("compactor", p.args...)
		meter.Next(p.TB, 20) // the calls that waited for the new process
		Hold(p.TB, name+", after a kill", before, meter.Next(p.TB, size(100, 30)), "accepted", p.compactor)
	}
	meter.Stop()
}

// Runs that never end and hold more than their record may have.
func TestCompactor_UnfinishedLargeRuns(t *testing.T) {
	p := startPipeline(t)
	runs, parts := threadsOn(Hostile, "large-", size(24, 8), hostilePartitions), size(4, 3)
	delta := []byte(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"` + strings.Repeat("x", 14<<20) + `"}`)
	var records []*kgo.Record
	for _, run := range runs {
		records = append(records, p.run(Hostile, run, run)[0])
	}
	for i := range parts * len(runs) {
		run := runs[i%len(runs)]
		records = append(records, p.message(record.KindEvent, Hostile, run, run, delta))
	}
	p.attack(fmt.Sprintf("%d unfinished runs of %d × 14 MiB", len(runs), parts), records, true)
}

// The most messages that an input may have, again and again.
func TestCompactor_InputsAtTheLimit(t *testing.T) {
	p := startPipeline(t)
	list := strings.Repeat(`"x",`, 10_000-1) + `"x"`
	runs := threadsOn(Hostile, "limit-", size(200, 20), hostilePartitions)
	var records []*kgo.Record
	for _, run := range runs {
		input := fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[]}`, run, run, list)
		records = append(append(records, p.message(record.KindInput, Hostile, run, run, input)), p.run(Hostile, run, run)...)
	}
	p.attack(fmt.Sprintf("%d inputs of 10,000 messages", len(runs)), records, false)
}

// Runs whose contents become very many rows of ClickHouse's tables of facts.
func TestIndexer_RunsOfManyToolCalls(t *testing.T) {
	p := startPipeline(t, clickhousetest.Start(t).Flags(t)...)
	const calls = 10_000 // as many as a snapshot may have
	list := make([]string, calls)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":"%d","type":"function","function":{"name":"n","arguments":""}}`, i)
	}
	snapshot := `{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"m","role":"assistant","toolCalls":[` + strings.Join(list, ",") + `]}]}`
	var records []*kgo.Record
	runs := threadsOn(Hostile, "calls-", size(200, 20), hostilePartitions)
	for _, run := range runs {
		records = append(records, p.run(Hostile, run, run, snapshot)...)
	}
	p.attack(fmt.Sprintf("%d runs of %d tool calls", len(runs), calls), records, false)
	if n := p.compactor.Metrics(t)[`skein_compactor_dead_letters_total{reason="malformed"}`]; n > 0 {
		t.Errorf("%.0f records are dead letters: the index had nothing to do", n)
	}
}

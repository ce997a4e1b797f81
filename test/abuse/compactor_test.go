package abuse

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

// pipeline is a compactor with an indexer and a query behind it. Producers write to Kafka themselves, as some platforms do: ingest's own
// limits are not in the way.
type pipeline struct {
	*Site
	producer *kgo.Client
	query    *Stage
	indexer  *Stage
	// compactor is the process that runs now; kept are those that were killed.
	compactor *Stage
	args      []string
}

// committed has the times at which the final records of the honest tenant's runs could be read from skein.runs.
type committed struct {
	mu sync.Mutex
	at map[string]time.Time
	// toCommit is how long turns took from their acknowledgement to that.
	toCommit []time.Duration
}

// follow reads skein.runs until the test ends.
func follow(p *pipeline) *committed {
	c := &committed{at: map[string]time.Time{}}
	from := map[int32]int64{}
	for id := range int32(Partitions) {
		from[id] = kafka.EndOffset
	}
	reader, err := kafka.NewDirectReader(p.Kafka, p.Kafka.Topics().Runs, from)
	if err != nil {
		p.TB.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := reader.PollFetches(ctx)
			now := time.Now()
			c.mu.Lock()
			fetches.EachRecord(func(m *kgo.Record) {
				if h, err := kafka.ParseHeaders(m.Headers); err == nil && strings.HasPrefix(h.RunID, "run-") {
					c.at[h.RunID] = now
				}
			})
			c.mu.Unlock()
		}
	}()
	p.TB.Cleanup(func() { stop(); <-done; reader.Close() })
	return c
}

// note is told that a run was acknowledged at a time, and can be read now.
func (c *committed) note(run string, acknowledged time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.at[run]; ok {
		c.toCommit = append(c.toCommit, max(0, at.Sub(acknowledged)))
	}
}

// take returns what was noted since the last time.
func (c *committed) take() Times {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.toCommit
	c.toCommit = nil
	slices.Sort(took)
	return Times{took: took}
}

// compacting starts one.
func compacting(t *testing.T, args ...string) *pipeline {
	t.Helper()
	return compactingInto(t, []string{"--sqlite", filepath.Join(t.TempDir(), "index.db")}, args...)
}

// compactingInto is compacting with the flags of the lineage store.
func compactingInto(t *testing.T, store []string, args ...string) *pipeline {
	t.Helper()
	p := &pipeline{Site: NewSite(t)}
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	migrate := exec.CommandContext(t.Context(), filepath.Join(bin, "skein"), append([]string{"migrate"}, store...)...)
	migrate.Env = process.Environment()
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("skein migrate: %v: %s", err, out)
	}
	p.args = append([]string{"--dir", filepath.Join(p.Dir, "compactor"), "--instance-id", "one"}, args...)
	p.compactor = p.Start("compactor", p.args...)
	p.indexer = p.Start("indexer", store...)
	p.query = p.Start("query", store...)
	producer, err := kafka.NewProducer(p.Kafka)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(producer.Close)
	p.producer = producer
	return p
}

// event is an event or input of a tenant's run, on the partition of its thread.
func (p *pipeline) event(kind record.Kind, tenant, thread, run string, value []byte) *kgo.Record {
	key, err := record.ThreadKey(tenant, thread)
	if err != nil {
		p.TB.Fatal(err)
	}
	return &kgo.Record{
		Topic: p.Kafka.Topics().Events, Partition: record.Partition([]byte(key), Partitions), Key: []byte(key), Value: value,
		Headers: kafka.Headers(record.Headers{Version: record.Version, Kind: kind, RunID: run, Seq: -1}),
	}
}

// threadsOn returns so many ids of a tenant's threads that lie on some partitions.
func threadsOn(tenant, prefix string, n int, partitions ...int32) (threads []string) {
	for i := 0; len(threads) < n; i++ {
		id := prefix + fmt.Sprint(i)
		key, err := record.ThreadKey(tenant, id)
		if err != nil {
			panic(err) // the ids of this package are right
		}
		if slices.Contains(partitions, record.Partition([]byte(key), Partitions)) {
			threads = append(threads, id)
		}
	}
	return threads
}

// The hostile tenant has its threads on the first two partitions. Honest threads on these wait behind its events, as Kafka keeps their order;
// the others are to notice nothing.
var hostilePartitions, otherPartitions = []int32{0, 1}, []int32{2, 3}

// turns returns a call that publishes a short run of the honest tenant on one of the partitions and waits until its history can be read.
func (p *pipeline) turns(partitions []int32, toCommit *committed) func(ctx context.Context, n int) error {
	threads := threadsOn(Honest, fmt.Sprint("thread-", partitions[0], "-"), 16, partitions...)
	return func(ctx context.Context, n int) error {
		return p.turn(ctx, threads[n%len(threads)], fmt.Sprint("run-", partitions[0], "-", n), toCommit)
	}
}

// turn publishes a run and waits until its history can be read.
func (p *pipeline) turn(ctx context.Context, thread, run string, toCommit *committed) error {
	var records []*kgo.Record
	for _, value := range []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run),
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%s","role":"assistant","delta":"hello"}`, run),
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run),
	} {
		records = append(records, p.event(record.KindEvent, Honest, thread, run, []byte(value)))
	}
	if err := p.producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	acknowledged := time.Now()
	web := p.Web()
	url := p.query.URL + "/v1/threads/" + thread + "/runs/" + run + "/history"
	tick := time.NewTicker(time.Duration(size(5, 20)) * time.Millisecond) // in the short form the readers share cores with the stages
	defer tick.Stop()
	for {
		resp, err := web.Do(p.Request(ctx, Honest, "GET", url, nil))
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(resp.Body)
		_ = resp.Body.Close() // only read
		switch {
		case err != nil:
			return fmt.Errorf("reading: %w", err)
		case resp.StatusCode == http.StatusOK && strings.Contains(body.String(), "hello"):
			toCommit.note(run, acknowledged)
			return nil
		case resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusOK:
			return fmt.Errorf("reading: %d %s", resp.StatusCode, &body)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// attack publishes records of the hostile tenant while the honest one is measured, and returns the row without an answer. Killed says
// that the compactor is killed while the attack's runs are open, and started again.
func (p *pipeline) attack(name string, records []*kgo.Record, killed bool) Row {
	p.TB.Helper()
	toCommit := follow(p)
	meter := MeasureBeside(p.TB, 4, 20*time.Millisecond, p.turns(otherPartitions, toCommit))
	behind := MeasureBeside(p.TB, 2, 20*time.Millisecond, p.turns(hostilePartitions, follow(p)))
	meter.Await(p.TB, 20) // a first run opens what every later one finds open
	meter.Take(p.TB)
	meter.Await(p.TB, size(100, 30))
	row := Row{Attack: name, Before: meter.Take(p.TB)}
	before := toCommit.take()
	behind.Take(p.TB)

	var sent atomic.Int64
	done := make(chan error, 1)
	go func() {
		for len(records) > 0 {
			n := 1 // large ones one by one, small ones some megabytes at a time
			for bytes := len(records[0].Value); n < len(records) && bytes < 1<<20; n++ {
				bytes += len(records[n].Value)
			}
			if err := p.producer.ProduceSync(p.TB.Context(), records[:n]...).FirstErr(); err != nil {
				done <- err
				return
			}
			for _, m := range records[:n] {
				sent.Add(int64(len(m.Value)))
			}
			records = records[n:]
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		p.TB.Fatal(err)
	}
	p.await()
	meter.Await(p.TB, 20)
	row.Sent, row.During = sent.Load(), meter.Take(p.TB)
	during := toCommit.take()
	p.TB.Logf("of that until the compactor has committed: p99 %v, %v before", during.At(.99), before.At(.99))
	behind.Await(p.TB, 2)
	p.TB.Logf("runs on the attacked partitions: p99 %v", behind.Take(p.TB).At(.99))
	if killed {
		row.Answer = fmt.Sprintf("%.0f runs cut", p.cut())
		row.Attack = name + ", before it is killed"
		Report(p.TB, p.compactor, row)
		if p.cut() == 0 {
			p.TB.Error("no run is cut")
		}
		row.Attack = name
		p.compactor.End(os.Kill)
		p.compactor = p.Start("compactor", p.args...)
		meter.Await(p.TB, 20)
		meter.Take(p.TB) // the calls that waited for the next process
		meter.Await(p.TB, size(100, 30))
		row.During = meter.Take(p.TB)
	}
	meter.Stop()
	behind.Stop()
	return row
}

// cut is how many runs the compactor has cut since it started.
func (p *pipeline) cut() float64 { return p.compactor.Metrics(p.TB)["skein_compactor_cut_runs_total"] }

// await waits until the compactor has decided about all records, and the indexer has written what came of them.
func (p *pipeline) await() {
	p.TB.Helper()
	p.awaitWithin(process.Patience)
}

func (p *pipeline) awaitWithin(patience time.Duration) {
	p.TB.Helper()
	for _, stage := range []*Stage{p.compactor, p.indexer} {
		process.EventuallyWithin(p.TB, patience, "the "+stage.Name+" has come behind the attack", func() (float64, bool) {
			lag := stage.Metrics(p.TB)["skein_"+stage.Name+"_lag_seconds"]
			return lag, lag < 1
		})
	}
}

// hold demands that the honest tenant waited no more than a second longer than without the attack. In the short form the row says how long it
// was: CI's machines have other work to do.
func (p *pipeline) hold(row Row) {
	p.TB.Helper()
	if during, before := row.During.At(.99), row.Before.At(.99); *Long && during > before+time.Second {
		p.TB.Errorf("the honest tenant's runs took %v until they could be read, %v without the attack: want a second more at most", during, before)
	}
}

// Runs that never end and hold more than their record may have.
func TestCompactor_UnfinishedLargeRuns(t *testing.T) {
	runs, parts := 16, 3
	if *Long {
		runs, parts = 48, 4
	}
	p := compacting(t)
	delta := []byte(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"` + strings.Repeat("x", 14<<20) + `"}`)
	var records []*kgo.Record
	for part := range parts {
		for _, run := range threadsOn(Hostile, "large-", runs, hostilePartitions...) {
			if part == 0 {
				records = append(records, p.event(record.KindEvent, Hostile, run, run, fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, run, run)))
			}
			records = append(records, p.event(record.KindEvent, Hostile, run, run, delta))
		}
	}
	row := p.attack(fmt.Sprintf("%d unfinished runs of %d × 14 MiB", runs, parts), records, true)
	row.Answer = fmt.Sprintf("%.0f runs cut since the restart", p.cut())
	Report(t, p.compactor, row)
	p.hold(row)
}

// Inputs of very many messages, each a few bytes.
func TestCompactor_InputsOfManyMessages(t *testing.T) {
	inputs := size(24, 8)
	p := compacting(t)
	list := strings.Repeat(`"x",`, 300_000-1) + `"x"`
	var records []*kgo.Record
	for _, run := range threadsOn(Hostile, "many-", inputs, hostilePartitions...) {
		records = append(records,
			p.event(record.KindInput, Hostile, run, run, fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[]}`, run, run, list)),
			p.event(record.KindEvent, Hostile, run, run, fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, run, run)),
			p.event(record.KindEvent, Hostile, run, run, fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, run, run)))
	}
	row := p.attack(fmt.Sprintf("%d inputs of 300,000 messages", inputs), records, false)
	letters := p.compactor.Metrics(t)[`skein_compactor_dead_letters_total{reason="malformed"}`]
	row.Answer = fmt.Sprintf("%.0f dead letters", letters)
	if letters < float64(inputs) {
		t.Errorf("of %d inputs with too many messages, %.0f are dead letters", inputs, letters)
	}
	Report(t, p.compactor, row)
	p.hold(row)
}

// The most messages that an input may have, again and again: what is allowed.
func TestCompactor_InputsAtTheLimit(t *testing.T) {
	inputs := size(200, 20)
	p := compacting(t)
	list := strings.Repeat(`"x",`, 10_000-1) + `"x"`
	var records []*kgo.Record
	for _, run := range threadsOn(Hostile, "limit-", inputs, hostilePartitions...) {
		records = append(records,
			p.event(record.KindInput, Hostile, run, run, fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[]}`, run, run, list)),
			p.event(record.KindEvent, Hostile, run, run, fmt.Appendf(nil, `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, run, run)),
			p.event(record.KindEvent, Hostile, run, run, fmt.Appendf(nil, `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, run, run)))
	}
	row := p.attack(fmt.Sprintf("%d inputs of 10,000 messages", inputs), records, false)
	row.Answer = "taken"
	Report(t, p.compactor, row)
	Report(t, p.indexer, row)
	p.hold(row)
}

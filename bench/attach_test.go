package bench

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/pkg/tenant"
)

var (
	readers = flag.Int("readers", 1_000, "live streams of BenchmarkAttach, each of a run of its own of -pace events a second")
	waiting = flag.Int("waiting", 10_000, "live streams that wait for their first run")
)

// attachPartitions is how many partitions the runs lie on, firstBytes how many readers come one after another.
const (
	attachPartitions = 12
	firstBytes       = 200
	paceParts        = 20
)

// BenchmarkAttach tells what live streams cost: how long a reader waits for its first byte on a tail that is warm, how much later than
// a bare consumer of the topic readers have an event, and what a reader holds in memory, in the middle of a run and waiting for one. Query
// is a process of its own; Kafka, producer, consumer and readers share the machine with it.
func BenchmarkAttach(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	cluster.MakeTopics(attachPartitions)
	cfg := cluster.Config
	prefix := cfg.TopicPrefix
	dir := b.TempDir()
	server := startStreams(b, "query", dir, strings.Join(cfg.Brokers, ","), prefix)

	bare := newBareConsumer(b, cfg)
	produce := newRuns(b, cfg)
	produce.all(func(run int) string {
		return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, threadOf(run))
	})
	one := openLive(b, server.addr, runStream(0)) // what the process makes for its first reader is not that of a stream
	one.untilID(b)
	go func() { _, _ = io.Copy(io.Discard, one.conn) }() // until the process ends; one that takes nothing is ended
	before := server.resident(b)
	streams := make([]*liveReader, *readers)
	for i := range streams {
		streams[i] = openLive(b, server.addr, runStream(i))
		streams[i].untilID(b)
	}
	var took latencies
	var reading sync.WaitGroup
	events := *pace * *seconds
	for _, r := range streams {
		reading.Go(func() { r.measure(events, bare, &took) })
	}
	produce.all(func(int) string { return `{"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant"}` })
	// The runs do not speak in step with one another: each event of a run comes at its own part of the pace.
	tick := time.NewTicker(time.Second / time.Duration(*pace*paceParts))
	for n := range events - 1 {
		for part := range paceParts {
			<-tick.C
			produce.some(part**readers/paceParts, (part+1)**readers/paceParts, func(int) string {
				return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"a word or two, and %d more "}`, n)
			})
		}
	}
	tick.Stop()
	reading.Wait()
	withReaders := server.resident(b) // with a run of all events each
	slices.Sort(took.all)
	if all := *readers * events; len(took.all) < all*99/100 { // the bare consumer has not all that the first batch begins with
		b.Fatalf("%d of %d events were read", len(took.all), all)
	}

	var first []time.Duration
	for i := range firstBytes {
		began := time.Now()
		r := openLive(b, server.addr, runStream(i%*readers))
		r.untilID(b)
		first = append(first, time.Since(began))
		r.close()
	}
	slices.Sort(first)
	for _, r := range streams {
		r.close()
	}
	server.awaitReaders(b, 1)  // that of before
	ring := server.resident(b) // the partitions are still read, so this has the latest records and not the readers
	each := (withReaders - ring) / float64(len(streams))

	indexAll(b, cfg, dir) // as an index does that keeps up: a new thread has nothing to read
	openLive(b, server.addr, "/v1/threads/waits/stream").untilJoin(b)
	beforeIdle := server.resident(b)
	began := time.Now()
	idle := make([]*liveReader, *waiting)
	for i := range idle {
		idle[i] = openLive(b, server.addr, "/v1/threads/waits-"+strconv.Itoa(i)+"/stream")
	}
	for _, r := range idle {
		r.untilJoin(b)
	}
	connected := time.Since(began)
	eachIdle := (server.resident(b) - beforeIdle) / float64(len(idle))
	for _, r := range idle {
		r.close()
	}

	b.Logf("first byte of a reader that joins: median %s, p99 %s of %d", quantile(first, .5), quantile(first, .99), firstBytes)
	b.Logf("%d readers of %d events/s for %d s: %d events; behind a bare consumer by %s in the median, p99 %s, longest %s",
		*readers, *pace, *seconds, len(took.all), quantile(took.all, .5), quantile(took.all, .99), took.all[len(took.all)-1])
	b.Logf("memory: %.1f KB a reader in a run, %.1f KB one that waits; the latest records, which all readers share, %.1f MB; %d that wait were there after %s",
		each/1000, eachIdle/1000, (ring-before)/1e6, *waiting, connected)
	b.ReportMetric(quantile(first, .5).Seconds()*1000, "ms-first-byte")
	b.ReportMetric(quantile(took.all, .99).Seconds()*1000, "ms-added-p99")
	b.ReportMetric(each/1000, "KB-reader")
	b.ReportMetric(eachIdle/1000, "KB-waiting")
	b.ReportMetric((ring-before)/1e6, "MB-ring")
}

// indexAll has the index of a query process say that all events on the topic are indexed.
func indexAll(b *testing.B, cfg kafka.Config, dir string) {
	b.Helper()
	adm := kafkatest.Admin(b, cfg)
	ends, err := adm.ListEndOffsets(b.Context(), cfg.Topics().Events)
	if err != nil {
		b.Fatal(err)
	}
	st, err := sqlite.Open(b.Context(), filepath.Join(dir, "lineage.sqlite"))
	if err != nil {
		b.Fatal(err)
	}
	var entries []store.Entry
	ends.Each(func(o kadm.ListedOffset) {
		entries = append(entries, store.Entry{Partition: o.Partition, Version: 1, Position: &store.Position{Next: o.Offset}})
	})
	err = st.Follow(b.Context(), "bench")
	if err == nil {
		err = st.Write(b.Context(), entries)
	}
	if err := errors.Join(err, st.Close()); err != nil {
		b.Fatal(err)
	}
}

func threadOf(run int) string   { return "t-" + strconv.Itoa(run) }
func runStream(run int) string  { return "/v1/threads/" + threadOf(run) + "/runs/r/stream" }
func partitionOf(run int) int32 { return record.Partition(keyOf(run), attachPartitions) }
func keyOf(run int) []byte      { return []byte("acme/" + threadOf(run)) }

// newQuery is the stage over an empty index: "FOLDER BROKERS PREFIX".
func newQuery(args []string) (http.Handler, error) {
	ctx := context.Background()
	k := kafka.Config{Brokers: strings.Split(args[1], ","), ClientID: "bench"}
	if len(args) > 2 {
		k.TopicPrefix = args[2]
	}
	st, err := sqlite.Open(ctx, filepath.Join(args[0], "lineage.sqlite"))
	if err != nil {
		return nil, err
	}
	if err := st.Migrate(ctx); err != nil {
		return nil, err
	}
	q := query.DefaultConfig()
	q.Tail.Kafka, q.Logger, q.Registerer = k, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	q.Memory = 64 << 30 // one tenant has all readers
	service, err := query.New(q, st, tenant.Fixed("acme"))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", service.Handler())
	mux.HandleFunc(openReaders, func(w http.ResponseWriter, _ *http.Request) {
		families, err := q.Registerer.(*prometheus.Registry).Gather()
		if err != nil {
			panic(err)
		}
		for _, f := range families {
			if f.GetName() == "skein_query_streams" {
				_, _ = fmt.Fprintf(w, "%d", int(f.GetMetric()[0].GetGauge().GetValue()))
			}
		}
	})
	return mux, nil
}

// openReaders is the path at which the query process says how many streams are open.
const openReaders = "/open-readers"

// awaitReaders waits until so many streams are open.
func (p *streamProcess) awaitReaders(tb testing.TB, want int) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + p.addr + openReaders)
		if err != nil {
			tb.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			tb.Fatal(err)
		}
		if string(text) == strconv.Itoa(want) {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s streams are open, want %d", text, want)
		}
	}
}

// runs writes events of all runs.
type runs struct {
	tb    testing.TB
	cl    *kgo.Client
	topic string
}

func newRuns(tb testing.TB, cfg kafka.Config) *runs {
	tb.Helper()
	cl, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return &runs{tb, cl, cfg.Topics().Events}
}

// all writes one event of each run.
func (w *runs) all(event func(run int) string) {
	w.tb.Helper()
	w.some(0, *readers, event)
}

// some writes one event of each run from one up to another.
func (w *runs) some(from, to int, event func(run int) string) {
	w.tb.Helper()
	headers := kafka.Headers(record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1})
	var list []*kgo.Record
	for i := from; i < to; i++ {
		list = append(list, &kgo.Record{Topic: w.topic, Partition: partitionOf(i), Key: keyOf(i), Value: []byte(event(i)), Headers: headers})
	}
	if err := w.cl.ProduceSync(w.tb.Context(), list...).FirstErr(); err != nil {
		w.tb.Fatal(err)
	}
}

// bareConsumer notes when a consumer that does nothing else has a record.
type bareConsumer struct {
	mu sync.Mutex
	at map[string]time.Time // by position
}

func newBareConsumer(tb testing.TB, cfg kafka.Config) *bareConsumer {
	tb.Helper()
	from := map[int32]int64{}
	for p := range int32(attachPartitions) {
		from[p] = 0
	}
	cl, err := kafka.NewDirectReader(cfg, cfg.Topics().Events, from)
	if err != nil {
		tb.Fatal(err)
	}
	c := &bareConsumer{at: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			now := time.Now()
			c.mu.Lock()
			fetches.EachRecord(func(m *kgo.Record) {
				c.at[record.Position{Partition: m.Partition, Offset: m.Offset}.String()] = now
			})
			c.mu.Unlock()
		}
	})
	tb.Cleanup(func() {
		cancel()
		ended.Wait()
		cl.Close()
	})
	return c
}

// liveReader is one live stream, read by hand: thousands of net/http's clients would take the processors from what is measured.
type liveReader struct {
	conn net.Conn
	r    *bufio.Reader
}

func openLive(tb testing.TB, addr, path string) *liveReader {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: bench\r\n\r\n", path); err != nil {
		tb.Fatal(err)
	}
	return &liveReader{conn, bufio.NewReaderSize(conn, 1<<10)}
}

func (r *liveReader) close() { _ = r.conn.Close() } // only read

// id returns the next id of the stream.
func (r *liveReader) id() (string, error) {
	for {
		line, err := r.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			return strings.TrimSpace(id), nil
		}
		if status, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok && !strings.HasPrefix(status, "200") {
			return "", fmt.Errorf("the answer is %s", status)
		}
	}
}

// untilJoin reads up to where the stream begins, untilID up to the end of what joins the run.
func (r *liveReader) untilJoin(tb testing.TB) {
	tb.Helper()
	if id, err := r.id(); err != nil || id != "join" {
		tb.Fatalf("the stream begins with %q, %v", id, err)
	}
}

func (r *liveReader) untilID(tb testing.TB) {
	tb.Helper()
	r.untilJoin(tb)
	if _, err := r.id(); err != nil {
		tb.Fatal(err)
	}
}

// measure reads so many events and notes by how much each came behind the bare consumer's.
func (r *liveReader) measure(events int, bare *bareConsumer, took *latencies) {
	type seen struct {
		id string
		at time.Time
	}
	var all []seen
	for range events {
		id, err := r.id()
		if err != nil {
			return // what is missing shows in the count
		}
		all = append(all, seen{id, time.Now()})
	}
	bare.mu.Lock()
	defer bare.mu.Unlock()
	took.mu.Lock()
	defer took.mu.Unlock()
	for _, s := range all {
		if at, ok := bare.at[s.id]; ok {
			took.all = append(took.all, max(0, s.at.Sub(at)))
		}
	}
}

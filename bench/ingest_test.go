package bench

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

var callers = flag.Int("callers", 32, "connections at a time in BenchmarkIngest")

const (
	batchEvents = 100
	eventBytes  = 200
)

// eventOf is an event of eventBytes; no two of a run are equal.
func eventOf(run, n int) []byte {
	event := fmt.Appendf(nil, `{"type":"TEXT_MESSAGE_CONTENT","timestamp":%d,"messageId":"%08x-7c1e-4b5a-9d3f-%012x","delta":"`, 1767225600000+n, run, run)
	for i := 0; len(event) < eventBytes-2; i++ {
		event = append(event, token(run+n*31, i)...)
	}
	return append(event[:eventBytes-2], `"}`...)
}

// BenchmarkIngest compares ingest with bare clients on one real Kafka, acks=all, in turn: batches of 100 events of
// 200 bytes with a bare producer that is fed the same records, and requests of one event with a net/http
// handler that does nothing but produce. Once in a while a batch has a bad line, which ingest has to refuse.
func BenchmarkIngest(b *testing.B) {
	cluster := kafkatest.Real(b, 1)
	for b.Loop() {
		cfg := topicSet(b, cluster)
		ingestServer := openIngest(b, cfg)
		bare := bareHandler(b, cfg)
		var shares [2][]float64
		for range *rounds {
			batches, producer := ingestServer.batches(b), bareProducer(b, cfg)
			one, handler := requests(b, ingestServer.url), requests(b, bare)
			b.Logf("batches of %d: %.0f events/s, bare producer %.0f: %.2f of it", batchEvents, batches, producer, batches/producer)
			b.Logf("one event a request: %.0f/s, bare handler %.0f: %.2f of it", one, handler, one/handler)
			shares[0], shares[1] = append(shares[0], batches/producer), append(shares[1], one/handler)
		}
		b.Logf("%d connections, %s; %d bad lines were refused", *callers, cluster.Version, ingestServer.refused.Load())
		for i, name := range []string{"of-producer", "of-handler"} {
			slices.Sort(shares[i])
			b.ReportMetric(shares[i][len(shares[i])/2], name)
		}
	}
}

type testIngest struct {
	url     string
	refused atomic.Int64
}

// openIngest serves ingest for one tenant on loopback.
func openIngest(tb testing.TB, k kafka.Config) *testIngest {
	tb.Helper()
	stage, err := ingest.New(ingest.DefaultConfig(k), tenant.Fixed("acme"))
	if err != nil {
		tb.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	watched := make(chan error, 1)
	go func() { watched <- stage.Run(ctx) }()
	for stage.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	d := &testIngest{url: serve(tb, stage.Handler())}
	tb.Cleanup(func() {
		stop()
		if err := errors.Join(<-watched, stage.Close()); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// serve serves a handler until the test ends.
func serve(tb testing.TB, h http.Handler) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			tb.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// bareHandler is a handler that produces a body as one record and waits for it.
func bareHandler(tb testing.TB, cfg kafka.Config) string {
	tb.Helper()
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(producer.Close)
	topic := cfg.Topics().Events
	return serve(tb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := io.ReadAll(r.Body)
		if err == nil {
			key := []byte("acme/" + strings.Split(r.URL.Path, "/")[3])
			err = producer.ProduceSync(r.Context(), &kgo.Record{Topic: topic, Key: key, Partition: record.Partition(key, int32(*width)),
				Value: value}).FirstErr()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
}

// during calls work from as many goroutines as there are callers for as long as a round takes, and returns what all
// calls returned, a second.
func during(tb testing.TB, work func(web *http.Client, caller, call int) (int, error)) float64 {
	tb.Helper()
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *callers}}
	defer web.CloseIdleConnections()
	var all sync.WaitGroup
	var n atomic.Int64
	var failed atomic.Pointer[error]
	began := time.Now()
	end := began.Add(time.Duration(*seconds) * time.Second)
	for caller := range *callers {
		all.Go(func() {
			for call := 0; time.Now().Before(end) && failed.Load() == nil; call++ {
				did, err := work(web, caller, call)
				if err != nil {
					failed.Store(&err)
				}
				n.Add(int64(did))
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		tb.Fatal(*err)
	}
	return float64(n.Load()) / time.Since(began).Seconds()
}

func (d *testIngest) batches(tb testing.TB) float64 {
	return during(tb, func(web *http.Client, caller, call int) (int, error) {
		var body bytes.Buffer
		for i := range batchEvents {
			body.Write(eventOf(caller, call*batchEvents+i))
			body.WriteByte('\n')
		}
		want := http.StatusOK
		if call%50 == 49 {
			body.WriteString("{\"type\":\n")
			want = http.StatusBadRequest
			d.refused.Add(1)
		}
		return batchEvents, post(web, fmt.Sprintf("%s/v1/threads/batch-%d/runs/r/events", d.url, caller), &body, want)
	})
}

func requests(tb testing.TB, url string) float64 {
	return during(tb, func(web *http.Client, caller, call int) (int, error) {
		return 1, post(web, fmt.Sprintf("%s/v1/threads/one-%d/runs/r/events", url, caller), bytes.NewReader(eventOf(caller, call)), http.StatusOK)
	})
}

func post(web *http.Client, url string, body io.Reader, want int) error {
	resp, err := web.Post(url, "application/x-ndjson", body)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode != want {
		return fmt.Errorf("answer is %s, want %d: %s", resp.Status, want, said)
	}
	return nil
}

// bareProducer sends the same events in the same way: each caller makes a batch and waits until it is acknowledged.
func bareProducer(tb testing.TB, cfg kafka.Config) float64 {
	tb.Helper()
	producer, err := kafka.NewProducer(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	defer producer.Close()
	topic := cfg.Topics().Events
	return during(tb, func(_ *http.Client, caller, call int) (int, error) {
		key, err := record.ThreadKey("acme", fmt.Sprintf("batch-%d", caller))
		if err != nil {
			return 0, err
		}
		headers := kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: "r", Seq: -1})
		batch := make([]*kgo.Record, batchEvents)
		for i := range batch {
			batch[i] = &kgo.Record{
				Topic: topic, Key: []byte(key), Partition: record.Partition([]byte(key), int32(*width)), Headers: headers,
				Value: eventOf(caller, call*batchEvents+i),
			}
		}
		return batchEvents, producer.ProduceSync(context.Background(), batch...).FirstErr()
	})
}

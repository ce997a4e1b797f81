package bench

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
)

var proxied = flag.Int("proxied", 500, "streams of BenchmarkProxy, each of 10 events of some 200 bytes a second")

// settle is how many events of each stream come first and are left out: streams that begin all at once are another matter.
const settle = 30

// BenchmarkProxy tells what the proxy adds to the time that an event takes from an agent to its caller: streams with
// the proxy between, and the same streams without it, in turn. Agents, callers and the proxy are in one process, and a real Kafka
// beside it on the same machine: what is added holds the work of the proxy, of publishing, and what Kafka's takes away.
func BenchmarkProxy(b *testing.B) {
	const period, lasts, rounds = 100 * time.Millisecond, 10 * time.Second, 3
	agent := httptest.NewServer(talkative(period, int(lasts/period)))
	defer agent.Close()
	cluster := kafkatest.Real(b, 1)
	cluster.MakeTopics(12)
	cfg := ingest.DefaultConfig(cluster.Config)
	var err error
	if cfg.Agents, err = agents.ParsePairs([]string{"a=" + agent.URL}); err != nil {
		b.Fatal(err)
	}
	stage, err := ingest.New(cfg, tenant.Fixed("t"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- stage.Run(ctx) }()
	front := httptest.NewServer(stage.Handler())
	defer func() {
		front.Close()
		stop()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
		if err := stage.Close(); err != nil {
			b.Error(err)
		}
	}()
	for stage.Ready() != nil {
		time.Sleep(time.Millisecond)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *proxied, DisableCompression: true}}
	defer client.CloseIdleConnections()

	for b.Loop() {
		var direct, through []time.Duration
		var directCPU, throughCPU time.Duration
		for round := range rounds {
			began := cpu(b)
			direct = append(direct, listen(b, client, agent.URL, fmt.Sprint("direct", round))...)
			between := cpu(b)
			through = append(through, listen(b, client, front.URL+"/v1/agents/a", fmt.Sprint("through", round))...)
			directCPU += between - began
			throughCPU += cpu(b) - between
		}
		events := time.Duration(rounds * *proxied * int(lasts/period))
		b.Logf("processor time an event, of all parties: direct %s, through the proxy %s, Kafka's not included", directCPU/events, throughCPU/events)
		slices.Sort(direct)
		slices.Sort(through)
		b.Logf("%d streams, %d events each way: direct p50 %s, p99 %s; through the proxy p50 %s, p99 %s",
			*proxied, len(direct), quantile(direct, .5), quantile(direct, .99), quantile(through, .5), quantile(through, .99))
		ms := func(share float64) float64 {
			return (quantile(through, share) - quantile(direct, share)).Seconds() * 1000
		}
		b.ReportMetric(ms(.5), "ms-p50-added")
		b.ReportMetric(ms(.99), "ms-p99-added")
		b.ReportMetric(float64((throughCPU-directCPU)/events/time.Microsecond), "cpu-µs-added")
	}
}

// cpu is the processor time that this process has had.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// talkative is an agent whose events say when they were sent.
func talkative(period time.Duration, events int) http.HandlerFunc {
	rest := strings.Repeat("x", 120)
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		_ = flush()
		time.Sleep(time.Duration(rand.Int64N(int64(period)))) // so that streams do not speak at once
		tick := time.NewTicker(period)
		defer tick.Stop()
		for range events {
			<-tick.C
			_, err := fmt.Fprintf(w, "data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"m1\",\"delta\":\"%d %s\"}\n\n", time.Now().UnixNano(), rest)
			if err != nil || flush() != nil {
				return
			}
		}
		_, _ = io.WriteString(w, "data: {\"type\":\"RUN_FINISHED\",\"threadId\":\"t\",\"runId\":\"r\"}\n\n")
	}
}

// listen opens all streams and returns how long each event took.
func listen(b *testing.B, client *http.Client, url, name string) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	for i := range *proxied {
		wg.Go(func() {
			input := fmt.Sprintf(`{"threadId":"%s-%d","runId":"r","state":{},"messages":[],"tools":[],"context":[],"forwardedProps":{}}`, name, i)
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, strings.NewReader(input))
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", "application/json")
			resp, err := client.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			took := make([]time.Duration, 0, 100)
			lines := bufio.NewReader(resp.Body)
			for {
				line, err := lines.ReadString('\n')
				now := time.Now().UnixNano()
				if err != nil {
					break
				}
				if _, delta, ok := strings.Cut(line, `"delta":"`); ok {
					sent, _, _ := strings.Cut(delta, " ")
					at, err := strconv.ParseInt(sent, 10, 64)
					if err != nil {
						b.Error(err)
						return
					}
					took = append(took, time.Duration(now-at))
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took[min(len(took), settle):]...)
		})
	}
	wg.Wait()
	if len(all) == 0 {
		b.Fatal("nothing came")
	}
	return all
}

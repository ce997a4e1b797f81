package ingest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// A real Kafka is killed twice while runs go on: every caller has its whole stream at the agents' pace, and every event is on the
// topic afterwards, in order, once for who drops what comes twice.
func TestProxy_RealKafkaIsKilledUnderLoad(t *testing.T) {
	t.Parallel()
	const runs, events, pace = 20, 300, 30 * time.Millisecond
	cluster := kafkatest.Real(t, 1, kafkatest.Own())
	cluster.MakeTopics(3)
	cfg := DefaultConfig(cluster.Config)
	cfg.AckTimeout = 2 * time.Second // so that the client gives records back, and the spool gives them again
	var first sync.WaitGroup
	first.Add(runs)
	b := startBehind(t, cfg, nil, func(w http.ResponseWriter, r *http.Request) {
		answers("data: "+begin+"\n\n")(w, r)
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range events {
			<-tick.C
			answers(fmt.Sprintf("data: {\"type\":\"CUSTOM\",\"name\":\"%d\"}\n\n", i))(w, r)
			if i == events/10 {
				first.Done()
			}
		}
		answers("data: "+finished+"\n\n")(w, r)
	})
	began := time.Now()
	var callers sync.WaitGroup
	for i := range runs {
		callers.Go(func() {
			body := strings.Replace(inputOf("r1"), `"t1"`, fmt.Sprintf(`"thread-%d"`, i), 1)
			resp, err := http.Post(b.srv.URL+"/v1/agents/helper", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if n := strings.Count(string(text), "data: "); err != nil || n != events+2 || strings.Contains(string(text), "RUN_ERROR") {
				t.Errorf("a caller has %d events, %v", n, err)
			}
		})
	}
	first.Wait()
	for range 2 {
		cluster.Kill(1)
		time.Sleep(3 * time.Second) // longer than the client tries: the outage is what is tried here
		cluster.Up(1)
	}
	callers.Wait()
	http.DefaultClient.CloseIdleConnections()
	t.Logf("callers had their streams after %v", time.Since(began))
	b.eventually("all is published", func() bool { return len(b.svc.Runs().all()) == 0 })

	next := map[string]int64{}
	repeats := 0
	rs := kafkatest.ConsumeUntil(t, b.cfg, b.cfg.Topics().Events, func(rs []*kgo.Record) bool { return len(rs) >= runs*(events+3) })
	for _, r := range rs {
		h := headersOf(t, r)
		key := string(r.Key)
		switch {
		case h.Seq < next[key]:
			repeats++ // inputs too
		case h.Seq > next[key] || h.Incomplete > 0:
			t.Fatalf("%s: number %d comes behind %d, incomplete %d", key, h.Seq, next[key]-1, h.Incomplete)
		default:
			next[key]++
		}
	}
	for key, n := range next {
		if n != events+2 {
			t.Errorf("%s has %d events", key, n)
		}
	}
	if len(next) != runs {
		t.Errorf("%d runs are there", len(next))
	}
	t.Logf("%d records, %d of them repeats and inputs", len(rs), repeats)
}

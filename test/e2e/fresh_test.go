package e2e_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

var freshReads = flag.Int("fresh.reads", 50, "how many runs are read right after their ends; a run of ten times as many events is read while it is open")

const (
	freshCallers = 4

	runStarted  = `{"type":"RUN_STARTED","threadId":%q,"runId":%q}`
	runFinished = `{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`
)

// With the intervals of production, a caller who has the end of a run acknowledged reads the whole run, and one that is open as far as its
// events: no 404, no old answer that does not say so.
func TestFresh_ReadsRightAfterAnAcknowledgement(t *testing.T) {
	cluster, server := kafkatest.Real(t, 1), clickhousetest.Start(t)
	p := startPipeline(t, ends{kafka: cluster.Config, replication: 1, store: server.Flags(t), production: true})
	t.Logf("ends: %s; %s", cluster.Version, server.Part)
	address := p.query.Said("listening", "address")
	post := func(thread, run string, events ...string) {
		t.Helper()
		body := strings.NewReader(strings.Join(events, "\n"))
		if _, err := p.ingestAPI[tenantA].PostEvents(t.Context(), thread, run, client.TypeNDJSON, body); err != nil {
			t.Error(err)
		}
	}
	late := atomic.Int64{}
	// get reads, and fails unless the answer has these texts. An answer that says that it may be old is counted, and asked for again.
	get := func(path string, q url.Values, texts ...string) time.Duration {
		t.Helper()
		began := time.Now()
		for {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path+"?"+q.Encode(), nil)
			if err != nil {
				t.Error(err)
				return 0
			}
			req.Header.Set("Authorization", "Bearer "+p.secrets[tenantA])
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return 0
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // read whole
			took := time.Since(began)
			if behind := resp.StatusCode == http.StatusServiceUnavailable || resp.Header.Get("Skein-Remarks") == "behind"; behind &&
				took < time.Minute {
				late.Add(1)
				continue
			}
			for _, text := range texts {
				if err != nil || !strings.Contains(string(body), text) {
					t.Errorf("GET %s lacks %s after %v: %s %.300s %v", path, text, took, resp.Status, body, err)
				}
			}
			return took
		}
	}
	cpu := func() float64 { return p.query.Metrics(t)["process_cpu_seconds_total"] }
	text := `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"%d "}`
	begin := func(thread, run string) []string {
		return []string{fmt.Sprintf(runStarted, thread, run), `{"type":"TEXT_MESSAGE_START","messageId":"m","role":"assistant"}`}
	}
	post("open", "r", begin("open", "r")...)
	for _, fresh := range []string{"yes", "no"} {
		q, used := url.Values{"fresh": {fresh}}, cpu()
		took := make([]time.Duration, *freshReads)
		var callers sync.WaitGroup
		for caller := range freshCallers {
			callers.Go(func() {
				for i := caller; i < len(took); i += freshCallers {
					thread, run := fmt.Sprintf("%s-%d-%d", fresh, caller, i/20), fmt.Sprintf("r%d", i)
					post(thread, run, append(begin(thread, run), fmt.Sprintf(text, i), `{"type":"TEXT_MESSAGE_END","messageId":"m"}`,
						fmt.Sprintf(runFinished, thread, run))...)
					path := []string{client.RunPath(thread, run), client.RunPath(thread, run) + "/history", client.ThreadPath(thread) + "/history"}[i%3]
					var want []string
					if fresh == "yes" {
						want = []string{`"runId":"` + run + `"`, `"status":"finished"`}
					}
					took[i] = get(path, q, want...)
					if caller == 0 {
						post("open", "r", fmt.Sprintf(text, i))
						get(client.RunPath("open", "r")+"/history", nil, fmt.Sprintf(`%d "`, i))
					}
				}
			})
		}
		callers.Wait()
		slices.Sort(took)
		t.Logf("%d reads right after an end, fresh=%s: median %v, p99 %v, longest %v; query took %.1f ms of CPU a read", *freshReads, fresh,
			took[len(took)/2], took[len(took)*99/100], took[len(took)-1], (cpu()-used)*1000/float64(len(took)))
	}

	run, last := client.RunPath("long", "r")+"/history", 10**freshReads-1
	post("long", "r", begin("long", "r")...)
	for i := 0; i <= last; i += 500 {
		var events []string
		for n := i; n < min(i+500, last+1); n++ {
			events = append(events, fmt.Sprintf(text, n))
		}
		post("long", "r", events...)
	}
	first, used := get(run, nil, fmt.Sprintf(`%d "`, last)), cpu()
	var took []time.Duration
	for range 100 {
		took = append(took, get(run, nil, fmt.Sprintf(`%d "`, last)))
	}
	slices.Sort(took)
	t.Logf("an open run of %d events: first read %v, then median %v, p99 %v; query took %.1f ms of CPU a read", last+3, first,
		took[50], took[99], (cpu()-used)*10)
	if n := late.Load(); n > int64(*freshReads)/20 {
		t.Errorf("%d reads said that they may be old", n)
	} else {
		t.Logf("%d reads said that they may be old, as the index was more than 2 s late", n)
	}
	p.stop()
}

package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/conformance"
	"github.com/skeinhq/skein/test/process"
)

// longestCall is how long query waits for a ClickHouse that hangs: TestStore_BoundsEachStatement holds the store
// to it, on a machine that may be busy.
const longestCall = 32 * time.Second

// The real ClickHouse goes away under running stages, comes back, hangs, and goes on. Meanwhile runs are
// published: the stages say what is wrong, once, and nothing is started anew or lost.
func TestWeather_StagesOutliveTheirClickHouse(t *testing.T) {
	t.Parallel() // most of it is waiting
	cluster, server := kafkatest.Real(t, 1), clickhousetest.Start(t)
	gate := clickhousetest.NewGate(t, server.Addr)
	server.Addr = gate.Addr
	p := startPipeline(t, ends{kafka: cluster.Config, replication: 1, store: server.Flags(t)})
	began := time.Now()
	say := func(format string, args ...any) {
		t.Helper()
		t.Logf("%v: "+format, append([]any{time.Since(began).Round(100 * time.Millisecond)}, args...)...)
	}

	runs := recordings.All()[:3]
	publish := func(i int) (check func()) {
		t.Helper()
		run, want := namesake(t, runs[i].Runs[0])
		if _, err := p.ingestAPI[tenantB].PutInput(t.Context(), run.ThreadID, run.RunID, run.Input); err != nil {
			t.Fatal(err)
		}
		ack, err := p.ingestAPI[tenantB].PostEvents(t.Context(), run.ThreadID, run.RunID, client.TypeNDJSON, bytes.NewReader(run.Events))
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			t.Helper()
			body := p.read(tenantB, client.RunPath(run.ThreadID, run.RunID)+"/history", fmt.Sprintf("%d:%d", ack.Partition, ack.LastOffset))
			var got conformance.Conversation
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if d := conformance.Diff(want, got); d != "" {
				t.Errorf("run %d: %s", i, d)
			}
		}
	}
	// away wants both stages to say why they cannot work, and query to refuse what it cannot answer.
	away := func(how, reason string) {
		t.Helper()
		for _, stage := range []*process.Process{p.indexer, p.query} {
			says := notReady(t, stage, `"status":"not ready"`, `"store":"`+reason)
			say("%s %s says %s", how, stage.Name, says)
		}
		asked := time.Now()
		_, err := p.api[tenantB].Get(t.Context(), "/v1/threads", nil)
		var said *client.Error
		if !errors.As(err, &said) || said.Status != http.StatusServiceUnavailable {
			t.Fatalf("%s query answers %v, want a 503", how, err)
		}
		took := time.Since(asked)
		if took > 3*longestCall {
			t.Errorf("%s query refuses after %v", how, took)
		}
		say("%s query refuses after %v: %v", how, took.Round(100*time.Millisecond), err)
	}
	back := func() {
		t.Helper()
		p.indexer.AwaitReady()
		p.query.AwaitReady()
		say("indexer and query are ready again")
	}

	first := publish(0)
	first()
	gate.Close()
	say("ClickHouse is away")
	second := publish(1)
	away("without ClickHouse", "asking ClickHouse for its schema: ClickHouse does not answer: dial tcp")
	notReady(t, p.indexer, `"index":"writing block: `)
	gate.Open()
	back()
	second()

	gate.Hang()
	say("ClickHouse hangs")
	third := publish(2)
	away("while ClickHouse hangs", "asking ClickHouse for its schema: ClickHouse does not answer: ")
	gate.GoOn()
	back()
	for _, check := range []func(){first, second, third} {
		check()
	}
	// They have tried all the time, and have said what is wrong a few times.
	for _, stage := range []*process.Process{p.indexer, p.query} {
		if n := stage.CountLogged("check fails"); n == 0 || n > 4 {
			t.Errorf("%s has logged %d times that a check fails: %s", stage.Name, n, stage.Tail())
		}
	}
	if n := p.indexer.CountLogged("writing to the store failed; trying again"); n > 6 {
		t.Errorf("the indexer has logged %d times that the store takes nothing: %s", n, p.indexer.Tail())
	}
	p.stop()
}

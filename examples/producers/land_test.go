package producers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tenant"
)

// run is one run as the programs read it: a line that says whose it is, its input, its events.
type run struct {
	Tenant string `json:"tenant"`
	Thread string `json:"thread"`
	Run    string `json:"run"`
	Agent  string `json:"agent,omitempty"`

	input  []byte
	events [][]byte
}

// runs makes a small run in each thread. Its run id is as odd as a thread's.
func runs(t *testing.T, threads []thread) []run {
	t.Helper()
	out := make([]run, len(threads))
	for i, x := range threads {
		r := run{Tenant: x.tenant, Thread: x.id, Run: threads[len(threads)-1-i].id}
		if i%2 == 0 {
			r.Agent = "agent " + x.tenant
		}
		ids := map[string]any{"threadId": x.id, "runId": r.Run}
		r.input = []byte(fmt.Sprintf(`%s,"messages":[],"n":1.10,"text":"\ud83e <&>\u2028"}`, bytes.TrimSuffix(encode(t, ids), []byte("}"))))
		r.events = [][]byte{
			[]byte(`{"type":"RUN_STARTED",` + string(encode(t, ids)[1:])),
			[]byte(`{ "type" : "CUSTOM", "name":"é\u00e9", "value":[1e400, 1.0, null], "run":"a member of its own", "run":2 }`),
		}
		out[i] = r
	}
	return out
}

// largest is a run with an event of exactly 16 MiB, which compression takes little off.
func largest() run {
	const before, after = `{"type":"CUSTOM","name":"large","value":"`, `"}`
	noise := make([]byte, kafka.MaxValueBytes)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(noise); i++ {
		noise[i] = byte(r.Uint32())
	}
	text := base64.StdEncoding.EncodeToString(noise)[:kafka.MaxValueBytes-len(before)-len(after)]
	return run{Tenant: "acme", Thread: "large", Run: "large", input: []byte(`{"messages":[]}`), events: [][]byte{[]byte(before + text + after)}}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write writes runs into a file for the programs.
func write(t *testing.T, runs []run) string {
	t.Helper()
	var b bytes.Buffer
	for _, r := range runs {
		for _, line := range append([][]byte{encode(t, r), r.input}, r.events...) {
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	file := filepath.Join(t.TempDir(), "runs.jsonl")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// bearer takes an API key for the tenant's name in hex.
type bearer struct{}

func (bearer) Authenticate(r *http.Request) (tenant.Identity, error) {
	name, err := hex.DecodeString(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if err != nil {
		return tenant.Identity{}, tenant.ErrUnauthenticated
	}
	return tenant.Identity{Tenant: string(name), Scopes: tenant.Scopes()}, nil
}

// publish sends runs through the HTTP API of ingest.
func publish(t *testing.T, cfg kafka.Config, runs []run) {
	t.Helper()
	s, err := ingest.New(ingest.DefaultConfig(cfg), bearer{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
	defer cancel()
	var service errgroup.Group
	watching, stop := context.WithCancel(ctx)
	service.Go(func() error { return s.Run(watching) })
	front := httptest.NewServer(s.Handler())
	defer func() {
		front.Close()
		stop()
		if err := service.Wait(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for s.Ready() != nil && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	clients := map[string]*client.Client{}
	for _, r := range runs {
		if clients[r.Tenant] == nil {
			if clients[r.Tenant], err = client.New(front.URL, client.WithAPIKey(hex.EncodeToString([]byte(r.Tenant)))); err != nil {
				t.Fatal(err)
			}
			defer clients[r.Tenant].Close()
		}
	}
	senders, ctx := errgroup.WithContext(ctx)
	senders.SetLimit(16)
	for _, r := range runs {
		c := clients[r.Tenant]
		senders.Go(func() error {
			if _, err := c.PutInput(ctx, r.Thread, r.Run, r.input); err != nil {
				return fmt.Errorf("input of %q: %w", r.Thread, err)
			}
			var b bytes.Buffer
			for seq, ev := range r.events {
				fmt.Fprintf(&b, "{\"seq\":%d,\"event\":%s}\n", seq, ev)
			}
			if _, err := c.PostEvents(ctx, r.Thread, r.Run, client.TypeSequenced, &b); err != nil {
				return fmt.Errorf("events of %q: %w", r.Thread, err)
			}
			return nil
		})
	}
	if err := senders.Wait(); err != nil {
		t.Fatal(err)
	}
}

// landed are the records of a topic as text, in order, by key and partition, and the values of their header agent by key.
func landed(records []*kgo.Record) (byKey map[string][]string, agents map[string]map[string]bool) {
	byKey, agents = map[string][]string{}, map[string]map[string]bool{}
	for _, r := range records {
		var headers []string
		agent := ""
		for _, h := range r.Headers {
			if h.Key == "agent" { // ingest has no word for it
				agent = string(h.Value)
				continue
			}
			headers = append(headers, fmt.Sprintf("%s=%q", h.Key, h.Value))
		}
		slices.Sort(headers)
		value := string(r.Value)
		if len(value) > 1<<10 {
			value = fmt.Sprintf("%d bytes, %x", len(value), sha256.Sum256(r.Value))
		}
		key := fmt.Sprintf("%s on %d", r.Key, r.Partition)
		byKey[key] = append(byKey[key], fmt.Sprintf("%q %s", value, headers))
		if agents[string(r.Key)] == nil {
			agents[string(r.Key)] = map[string]bool{}
		}
		agents[string(r.Key)][agent] = true
	}
	return byKey, agents
}

// Same key, same partition, same value and headers, in the same order: what a program sends is what ingest writes.
func TestProducers_LandWhereIngestLands(t *testing.T) {
	cfg, runs := kafkatest.Real(t, 1).Config, append(runs(t, oddThreads(t)), largest())
	topicsOf := func(t *testing.T, name string) kafka.Config {
		t.Helper()
		mine := cfg
		mine.TopicPrefix += name + "."
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
		defer cancel()
		if _, err := kafka.EnsureTopics(ctx, mine, kafka.TopicSpec{Partitions: 12}); err != nil {
			t.Fatal(err)
		}
		return mine
	}
	front := topicsOf(t, "ingest")
	publish(t, front, runs)
	want, _ := landed(kafkatest.Consume(t, front, front.Topics().Events))
	if len(want) != len(runs) {
		t.Fatalf("ingest has written %d threads of %d", len(want), len(runs))
	}
	file := write(t, runs)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			p.prepare(t)
			mine := topicsOf(t, p.name)
			p.send(t, mine.Brokers, mine.Topics().Events, file)
			got, agents := landed(kafkatest.Consume(t, mine, mine.Topics().Events))
			var wrong []string
			for _, key := range slices.Sorted(maps.Keys(want)) {
				if !slices.Equal(got[key], want[key]) {
					wrong = append(wrong, fmt.Sprintf("key %s has\n%s\ningest has\n%s", key, got[key], want[key]))
				}
			}
			for _, r := range runs {
				key, err := record.ThreadKey(r.Tenant, r.Thread)
				if err != nil {
					t.Fatal(err)
				}
				if len(agents[key]) != 1 || !agents[key][r.Agent] {
					wrong = append(wrong, fmt.Sprintf("key %s has the agents %q, want %q", key, slices.Collect(maps.Keys(agents[key])), r.Agent))
				}
			}
			if len(wrong) > 0 || len(got) != len(want) {
				t.Errorf("%d threads are there, want %d; %d things are wrong, such as\n%s", len(got), len(want), len(wrong), strings.Join(wrong[:min(len(wrong), 3)], "\n"))
			}
		})
	}
}

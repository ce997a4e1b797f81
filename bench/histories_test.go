package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/tenant"
)

// BenchmarkHistories measures requests to the query stage over many threads of twenty runs, at 12 and at 40 parts that are not merged:
// histories, lineages, runs, searches, a mix of them, and the ancestors of a run at depth 1,000. Milliseconds of processors are those of
// the server, the stage and its caller together.
//
//	SKEIN_BENCH_RUNS=500000 go test ./bench -run '^$' -bench Histories -benchtime 200x -v -timeout 60m
func BenchmarkHistories(b *testing.B) {
	total := analyticsTotal(b)
	for _, parts := range []int{12, 40} {
		b.Run(fmt.Sprintf("parts=%d", parts), func(b *testing.B) { historiesOf(b, total, parts) })
	}
}

// chain is how many runs a thread of BenchmarkHistories has, each of which goes on from the one before.
const chain = 20

func historiesOf(b *testing.B, total, parts int) {
	_, s, c := generated(b, total, parts, chain, 0)
	execute(b, c, "SYSTEM STOP MERGES messages")
	execute(b, c, "SYSTEM STOP MERGES states")
	const deep = 1000
	for p := range parts {
		from, to := total*p/parts, total*(p+1)/parts
		within := fmt.Sprintf(" WHERE version >= %d AND version < %d", from, to)
		// As an indexer inserts: merges make the index of words.
		execute(b, c, generateMessages+within+oneBlock(2*(to-from))+", materialize_skip_indexes_on_insert = 0") //nolint:misspell // the server's spelling
		execute(b, c, generateStates+within+oneBlock(to-from))
		from, to = deep*p/parts, deep*(p+1)/parts
		execute(b, c, insertRuns+strings.Replace(fmt.Sprintf(selectRuns, from, to-from, 1, deep, 0), "\n    t, th, r,",
			"\n    'deep', 'deep', r,", 1))
	}
	threads := someThreads(b, c, "tenant = 'deep'")
	at := queryOver(b, s)
	n := 0
	next := func() (tenant, thread, tip string) {
		n++
		t := threads[n%len(threads)]
		return t.Tenant, t.Thread, t.Tip
	}
	history := func(ctx context.Context) error {
		tenant, thread, tip := next()
		return ask(ctx, at, tenant, "/v1/threads/"+thread+"/runs/"+tip+"/history")
	}
	lineage := func(ctx context.Context) error {
		tenant, thread, _ := next()
		return ask(ctx, at, tenant, "/v1/threads/"+thread+"/lineage")
	}
	run := func(ctx context.Context) error {
		tenant, thread, tip := next()
		return ask(ctx, at, tenant, "/v1/threads/"+thread+"/runs/"+tip)
	}
	search := func(ctx context.Context) error {
		tenant, _, _ := next()
		return ask(ctx, at, tenant, "/v1/runs?limit=100")
	}
	b.Run(fmt.Sprintf("history of %d runs", chain), func(b *testing.B) { measure(b, c, history) })
	b.Run(fmt.Sprintf("lineage of %d runs", chain), func(b *testing.B) { measure(b, c, lineage) })
	b.Run("run", func(b *testing.B) { measure(b, c, run) })
	b.Run("newest 100 runs", func(b *testing.B) { measure(b, c, search) })
	b.Run("mix of 60 % histories, 20 % lineages, 10 % runs, 10 % searches", func(b *testing.B) {
		mix := []func(context.Context) error{history, lineage, history, run, history, history, lineage, history, search, history}
		i := 0
		measure(b, c, func(ctx context.Context) error {
			i++
			return mix[i%len(mix)](ctx)
		})
	})
	tip := value(b, c, "SELECT argMax(run_id, depth) FROM runs WHERE tenant = 'deep' AND thread_id = 'deep'")
	b.Run(fmt.Sprintf("ancestors at depth %d", deep), func(b *testing.B) {
		measure(b, c, func(ctx context.Context) error {
			return ask(ctx, at, "deep", "/v1/threads/deep/lineage?ancestorsOf="+tip)
		})
	})
}

// asTenant takes every request for one of the tenant that its header names.
type asTenant struct{}

const tenantHeader = "Bench-Tenant"

func (asTenant) Authenticate(r *http.Request) (tenant.Identity, error) {
	return tenant.Identity{Tenant: r.Header.Get(tenantHeader), Scopes: tenant.Scopes()}, nil
}

// queryOver serves the query stage over a store, and returns its address. Sealed runs need no Kafka.
func queryOver(b *testing.B, s *clickhouse.Store) string {
	b.Helper()
	k := kafkatest.Start(b, 1)
	q := query.DefaultConfig()
	q.Tail.Kafka, q.Logger, q.Registerer = k, slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	service, err := query.New(q, s, asTenant{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(service.Close)
	return serve(b, service.Handler())
}

// ask reads an answer that must be 200.
func ask(ctx context.Context, at, tenant, path string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at+path, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set(tenantHeader, tenant)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if e := resp.Body.Close(); err == nil {
		err = e
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, resp.Status, body)
	}
	return err
}

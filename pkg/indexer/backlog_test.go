package indexer

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// fetched notes which partitions a client was told to leave out.
type fetched struct{ paused []int32 }

func (f *fetched) PauseFetchPartitions(of map[string][]int32) map[string][]int32 {
	for _, ids := range of {
		f.paused = append(f.paused, ids...)
	}
	return nil
}

func (f *fetched) ResumeFetchPartitions(of map[string][]int32) {
	f.paused = slices.DeleteFunc(f.paused, func(p int32) bool { return slices.Contains(of["runs"], p) })
}

// gathering returns a gatherer of which partitions are ours, and what hands it polled records.
func gathering(t *testing.T, partitions ...int32) (g *gatherer, client *fetched, poll func(of int32, records ...*kgo.Record)) {
	t.Helper()
	cfg := DefaultConfig(kafka.Config{Brokers: []string{"unused:9092"}})
	cfg.Registerer = prometheus.NewRegistry()
	s, err := New(cfg, newFakeStore())
	if err != nil {
		t.Fatal(err)
	}
	s.owned.assigned(t.Context(), nil, map[string][]int32{"runs": partitions})
	client = &fetched{}
	g = &gatherer{Service: s, block: newBlock(), backlog: backlog{client: client, topic: "runs", stopped: s.metrics.stops.Has}}
	next := map[int32]int64{}
	return g, client, func(of int32, records ...*kgo.Record) {
		for _, r := range records {
			r.Topic, r.Partition, r.Offset = "runs", of, next[of]
			next[of]++
		}
		g.backlog.add(polled{epochs: s.owned.copyEpochs(), records: kgo.Fetches{{Topics: []kgo.FetchTopic{{
			Topic: "runs", Partitions: []kgo.FetchPartition{{Partition: of, Records: records}},
		}}}}})
	}
}

// runOf is the record of a run with so many messages.
func runOf(t *testing.T, run string, messages int) *kgo.Record {
	t.Helper()
	r := &record.Run{
		Tenant: "acme", ThreadID: "thread", RunID: run, Status: record.StatusFinished, Lineage: record.Lineage{ParentBy: record.ParentNone},
	}
	for i := range messages {
		id := fmt.Sprint(run, "-", i)
		r.Messages = append(r.Messages, agui.Message{ID: id, Role: agui.RoleAssistant, Raw: fmt.Appendf(nil, `{"id":%q,"role":"assistant","content":""}`, id)})
	}
	key, err := record.RunKey("acme", "thread", run)
	if err != nil {
		t.Fatal(err)
	}
	value, err := record.EncodeRun(r)
	if err != nil {
		t.Fatal(err)
	}
	return &kgo.Record{Key: []byte(key), Value: value, Headers: kafka.Headers(record.Headers{Kind: record.KindRun, Seq: -1})}
}

// What is new on one partition comes into the next block, however much was polled of another before.
func TestGatherer_ARecordWaitsForNoBacklogOfAnotherPartition(t *testing.T) {
	g, client, poll := gathering(t, 0, 1)
	for i := range 20 {
		poll(0, runOf(t, fmt.Sprint("large-", i), 9_000))
	}
	if !slices.Equal(client.paused, []int32{0}) {
		t.Errorf("of partition 0 more than %d bytes wait, and paused are %v", holdBytes, client.paused)
	}
	for goesOn := true; goesOn; {
		goesOn, _ = g.decode(t.Context())
	}
	if g.block.bytes < firstBlock || g.block.bytes > 2*firstBlock {
		t.Errorf("the block has %d bytes of one partition", g.block.bytes)
	}
	poll(1, runOf(t, "small", 1))
	if goesOn, full := g.decode(t.Context()); goesOn || !full {
		t.Errorf("decoding goes on: %v, the block is full for what waits: %v", goesOn, full)
	}
	if g.block.progress[1].next != 1 {
		t.Fatalf("the block has %v of partition 1", g.block.progress[1])
	}
	// All of the backlog comes, in order, and then its partition is fetched again.
	var got []string
	for blocks := 0; ; blocks++ {
		for _, e := range g.block.entries {
			got = append(got, e.RunID)
		}
		if len(g.backlog.queues[0].records) == 0 {
			break
		}
		if blocks > 20 {
			t.Fatal("the backlog does not end")
		}
		g.handedOver()
		for goesOn := true; goesOn; {
			goesOn, _ = g.decode(t.Context())
		}
	}
	first := slices.Index(got, "small")
	if first < 0 || first > 5 {
		t.Errorf("the small record comes behind %d others", first)
	}
	var want []string
	for i := range 20 {
		want = append(want, fmt.Sprint("large-", i))
	}
	got = slices.DeleteFunc(got, func(run string) bool { return run == "small" })
	if !slices.Equal(got, want) || len(client.paused) != 0 || g.backlog.bytes != 0 {
		t.Errorf("written are %v, paused are %v, %d bytes are counted", got, client.paused, g.backlog.bytes)
	}
}

// What waits of a partition that went away and came back is read again from its committed offset: it must not be written beside that.
func TestGatherer_DropsWhatWaitsFromAnAssignmentBefore(t *testing.T) {
	g, client, poll := gathering(t, 0)
	for i := range 20 {
		poll(0, runOf(t, fmt.Sprint("before-", i), 9_000))
	}
	g.owned.revoked(t.Context(), nil, map[string][]int32{"runs": {0}})
	g.owned.assigned(t.Context(), nil, map[string][]int32{"runs": {0}})
	poll(0, runOf(t, "after", 1))
	for goesOn := true; goesOn; {
		goesOn, _ = g.decode(t.Context())
	}
	if len(g.block.entries) != 1 || g.block.entries[0].RunID != "after" || len(client.paused) != 0 || g.backlog.bytes != 0 {
		t.Errorf("the block has %d entries, paused are %v, %d bytes are counted", len(g.block.entries), client.paused, g.backlog.bytes)
	}
}

// Where every partition has a backlog, nothing waits for a large block: it has all that it may.
func TestGatherer_FillsABlockWhereAllPartitionsHaveABacklog(t *testing.T) {
	g, _, poll := gathering(t, 0, 1)
	for of := range int32(2) {
		for i := range 30 {
			poll(of, runOf(t, fmt.Sprint("run-", of, "-", i), 4_000))
		}
	}
	for goesOn := true; goesOn; {
		goesOn, _ = g.decode(t.Context())
	}
	if most := g.cfg.MaxBytes; g.block.bytes < most*9/10 || g.block.bytes > most {
		t.Errorf("the block has %d bytes of the %d that it may", g.block.bytes, most)
	}
}

// It polls no more while something of each partition waits, and sees all the same that nothing more is polled: the block is handed over,
// and what is in none is left.
func TestGatherer_EndsWithABacklogOfAllPartitions(t *testing.T) {
	g, _, poll := gathering(t, 0, 1)
	for of := range int32(2) {
		for i := range 60 {
			poll(of, runOf(t, fmt.Sprint("run-", of, "-", i), 4_000))
		}
	}
	blocks, ended, over := make(chan *block), make(chan struct{}), make(chan struct{})
	g.blocks, g.ended = blocks, ended
	go func() {
		defer close(over)
		g.run(t.Context(), make(chan polled))
	}()
	<-blocks
	close(ended)
	n := 0
	for range blocks {
		n++
	}
	<-over
	if n > 2 || g.backlog.waiting() == 0 {
		t.Errorf("%d blocks came behind the end, and of %d partitions something waits", n, g.backlog.waiting())
	}
}

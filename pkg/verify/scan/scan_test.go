package scan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// topics are a topic set of one partition.
type topics struct {
	*testing.T
	kafka kafka.Config
	next  int64
}

// alone is a run that is folded by itself (fold.Runs).
type alone struct {
	run  *fold.Run
	rec  *record.Run
	from fold.Origin
}

func (a *alone) Find(*fold.Decoded) (*fold.Run, fold.Outcome, error) { return a.run, "", nil }

func (a *alone) Begin(_ *fold.Run, _ *fold.Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	return fold.Restart(a.rec, &a.from, input), nil
}

// run has a run of a thread lie there whole, and its record: a root, as its input says.
func (s *topics) run(thread, run string) {
	s.Helper()
	key, err := record.ThreadKey("acme", thread)
	s.check(err)
	rec := &record.Run{
		Tenant: "acme", ThreadID: thread, RunID: run, Lineage: record.Lineage{ParentBy: record.ParentNone, SpawnedBy: "elsewhere", BranchID: run, RootRunID: run},
		FoldVersion: compact.Version, Raw: record.Raw{First: s.next, Next: s.next + 2, Ranges: [][2]int64{{s.next, s.next + 2}}},
	}
	r := &alone{run: fold.NewRun(thread, run, run), rec: rec}
	loop := fold.NewLoop(r)
	at := time.Now().Truncate(time.Millisecond)
	for _, value := range []string{
		fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%[1]q,"runId":%[2]q,"parentRunId":"elsewhere","input":{"threadId":%[1]q,"runId":%[2]q,"messages":[{"id":%[2]q,"role":"user","content":"x"}],"state":{},"tools":[],"context":[]}}`, thread, run),
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run),
	} {
		headers := record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}
		kafkatest.Produce(s.T, s.kafka, &kgo.Record{Topic: s.kafka.Topics().Events, Key: []byte(key), Value: []byte(value), Timestamp: at,
			Headers: kafka.Headers(headers)})
		_, _, err := loop.Next(&record.Event{Offset: s.next, Time: at, Headers: headers, Value: []byte(value)})
		s.check(err)
		s.next++
	}
	rec, _ = r.run.Record(rec, r.from, rec.Raw.First, s.next)
	value, err := record.EncodeRun(rec)
	s.check(err)
	kafkatest.Produce(s.T, s.kafka, &kgo.Record{
		Topic: s.kafka.Topics().Runs, Key: []byte(key + "/" + run), Value: value,
		Headers: kafka.Headers(record.Headers{Kind: record.KindRun, RunID: run, Seq: -1}),
	})
}

func (s *topics) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Whatever a tenant has: no more of it is planned and folded at once than there is room for, all runs come once, and what is too large by
// itself is left to the caller.
func TestVerify_TakesNoMoreAtOnceThanItMay(t *testing.T) {
	s := &topics{T: t, kafka: kafkatest.Start(t, 1)}
	const threads = 30
	for i := range threads {
		for run := range 1 + i%3 {
			s.run(fmt.Sprint("t", i), fmt.Sprint("r", run))
		}
	}
	for run := range 12 {
		s.run("many", fmt.Sprint("r", run))
	}
	large := strings.Repeat("large", 100)
	s.run("large", large)
	for _, c := range []struct {
		planned, bytes int
		apart          []string
	}{
		{0, 0, nil},
		{12, 0, []string{"many"}},
		{40, 0, []string{"many"}},
		{0, 5000, []string{"large", "many"}},
		{4000, 1 << 20, nil},
	} {
		apart, told, done := map[string]bool{}, map[string]int{}, []int{}
		v := &reader{cfg: s.kafka, maxRuns: c.planned, maxBytes: c.bytes, query: Query{
			Tenant:   "acme",
			Progress: func(n, total int) { done = append(done, n*100/total) },
			Excluded: func(_, thread string) error { apart[thread] = true; return nil },
		}}
		v.report = reportVerified(func(runs []Verified) error {
			for _, r := range runs {
				told[r.Record.ThreadID+"/"+r.Record.RunID]++
				if r.Report.Verdict != verify.Proved || len(r.Report.Unproved) > 0 || r.Report.RunID != r.Record.RunID {
					t.Errorf("%s: %+v", r.Record.ThreadID, r.Report)
				}
			}
			return nil
		})
		s.check(v.run(t.Context()))
		if got := slices.Sorted(maps.Keys(apart)); !slices.Equal(got, c.apart) {
			t.Errorf("with %+v apart are %q", c, got)
		}
		want := 2*threads + 13
		for thread := range apart {
			want -= map[string]int{"many": 12, "large": 1}[thread]
		}
		n := 0
		for run, times := range told {
			if n++; times != 1 {
				t.Errorf("with %+v: %s is told %d times", c, run, times)
			}
		}
		if n != want {
			t.Errorf("with %+v %d runs are told, want %d", c, n, want)
		}
		if !slices.IsSorted(done) || done[0] != 0 || done[len(done)-1] != 100 {
			t.Errorf("with %+v it was at %v %%", c, done)
		}
	}
}

// A thread of which a record was replaced since it was planned is left, as the others may have been placed beside the newer one.
func TestVerify_LeavesAThreadWithNewerRecords(t *testing.T) {
	s := &topics{T: t, kafka: kafkatest.Start(t, 1)}
	s.run("a", "r")
	s.run("b", "r")
	s.run("b", "s")
	var told []string
	v := &reader{cfg: s.kafka, query: Query{Tenant: "acme"}, report: reportVerified(func(runs []Verified) error {
		told = append(told, runs[0].Record.ThreadID)
		return nil
	})}
	s.check(v.fetchSpans(t.Context()))
	batches, _, err := v.plan(t.Context(), 0)
	s.check(err)
	if len(batches) != 1 || len(batches[0].records) != 3 {
		t.Fatalf("planned %+v", batches)
	}
	batches[0].records[77] = batches[0].records[2] // where one was that is not there any more
	apart, err := v.fold(t.Context(), batches[0], &progress{})
	s.check(err)
	if !slices.Equal(told, []string{"a"}) || !slices.Equal(apart, []string{"acme/b"}) {
		t.Errorf("told %q, left %q", told, apart)
	}
}

func TestVerify_WantsATenant(t *testing.T) {
	if err := Verify(t.Context(), kafka.Config{}, Query{}, nil); err == nil {
		t.Error("everybody's runs are verified")
	}
}

package ingest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// inTurn starts stages before one cluster and one agent that takes one run of a thread at a time.
func inTurn(t *testing.T, cfg Config, n int, runs agents.Runs, f http.HandlerFunc) []*behind {
	t.Helper()
	set := func(a *agents.Agent) { a.OnDisconnect, a.Runs, a.MaxQueued = agents.Cancel, runs, 2 }
	all := []*behind{startBehind(t, cfg, set, f)}
	for range n - 1 {
		cfg.Agents = agents.Config{"helper": agentAt(t, all[0].agent.URL, set)}
		all = append(all, &behind{stage: open(t, cfg), agent: all[0].agent})
	}
	return all
}

// start calls the agent for a run of the stage's thread.
func (b *behind) start(ctx context.Context, run string) *http.Response {
	b.t.Helper()
	return b.call(ctx, strings.Replace(inputOf(run), `"threadId":"t1"`, `"threadId":"`+b.thread+`"`, 1))
}

// waits starts a run that waits for its thread, and returns its stream.
func (b *behind) waits(run string) io.ReadCloser {
	b.t.Helper()
	resp := b.start(b.t.Context(), run)
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("answer is %s", resp.Status)
	}
	return resp.Body
}

// refused starts a run that must be refused.
func (b *behind) refused(run string, status int, reason, says string) answer {
	b.t.Helper()
	resp := b.start(b.t.Context(), run)
	defer resp.Body.Close()
	a := b.read(resp)
	if a.status != status || a.Reason != reason || !strings.Contains(a.Detail, says) {
		b.t.Fatalf("answer is %d %s, want %d %s that says %q", a.status, a.body, status, reason, says)
	}
	return a
}

// claims waits until the thread has so many records of claims.
func (b *behind) claims(n int) []*kgo.Record {
	b.t.Helper()
	var claims []*kgo.Record
	b.eventually(fmt.Sprintf("there are %d claims", n), func() bool {
		claims = slices.DeleteFunc(b.records(), func(r *kgo.Record) bool { return headersOf(b.t, r).Kind != record.KindClaim })
		return len(claims) >= n
	})
	return claims
}

// ended reports how the thread's runs ended, by run.
func (b *behind) endings() map[string]record.Status {
	b.t.Helper()
	out := map[string]record.Status{}
	for _, r := range b.records() {
		if end, err := endOf(r); err != nil {
			b.t.Fatal(err)
		} else if end.status != "" {
			out[end.runID] = end.status
		}
	}
	return out
}

// says answers with a whole run of the input's id.
func says(w http.ResponseWriter, r *http.Request) {
	run := runOf(r)
	answers("data: "+strings.ReplaceAll(begin, `"r1"`, `"`+run+`"`)+"\n\n", "data: "+strings.ReplaceAll(finished, `"r1"`, `"`+run+`"`)+"\n\n")(w, r)
}

func runOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	_, rest, _ := strings.Cut(string(body), `"runId":"`)
	run, _, _ := strings.Cut(rest, `"`)
	return run
}

func TestTurn_OneOfAThousandStartsWins(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		all := inTurn(t, DefaultConfig(k), 2, agents.Reject, runsOn)
		const n = 1000
		var won, busy atomic.Int64
		var callers sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		began := time.Now()
		for i := range n {
			callers.Go(func() {
				resp := all[i%2].start(ctx, fmt.Sprint("r", i))
				if resp.StatusCode == http.StatusOK {
					won.Add(1)
					context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
					return
				}
				if a := all[i%2].read(resp); a.status == http.StatusConflict && a.Reason == "thread-busy" {
					busy.Add(1)
				}
			})
		}
		callers.Wait()
		t.Logf("%d starts over two processes took %v", n, time.Since(began))
		if won.Load() != 1 || busy.Load() != n-1 {
			t.Errorf("%d starts won and %d were refused, want 1 and %d", won.Load(), busy.Load(), n-1)
		}
		inputs := 0
		for _, r := range all[0].records() {
			if headersOf(t, r).Kind == record.KindInput {
				inputs++
			}
		}
		if inputs != 1 {
			t.Errorf("%d runs are recorded, want 1", inputs)
		}
	})
}

// Clients that try again at once do not keep an idle thread idle.
func TestTurn_RefusedStartsDoNotRefuseEachOther(t *testing.T) {
	t.Parallel()
	c := kafkatest.StartCluster(t, 3)
	c.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.Fake.KeepControl()
		c.Fake.SleepControl(func() { time.Sleep(200 * time.Millisecond) })
		return nil, nil, false
	})
	all := inTurn(t, testConfig(c.Config), 2, agents.Reject, says)
	begin := func(n int) int64 {
		var won atomic.Int64
		var clients sync.WaitGroup
		for i := range n {
			clients.Go(func() {
				for k, began := 0, time.Now(); time.Since(began) < 3*time.Second; k++ {
					resp := all[i%2].start(t.Context(), fmt.Sprint("r", n, "-", i, "-", k))
					_, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if resp.StatusCode == http.StatusOK {
						won.Add(1)
					} else {
						time.Sleep(30 * time.Millisecond)
					}
				}
			})
		}
		clients.Wait()
		return won.Load()
	}
	if alone, together := begin(1), begin(10); together < alone/2 { // of 7 alone, 5 to 13; 1 or 2 where starts refuse each other
		t.Errorf("%d runs began, and %d of one client alone", together, alone)
	}
}

func TestTurn_AnUncontendedStartTakesMilliseconds(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		cfg := DefaultConfig(k)
		for _, policy := range []agents.Runs{agents.Allow, agents.Reject} {
			b := inTurn(t, cfg, 1, policy, says)[0]
			const n = 50
			var took []time.Duration
			for i := range n + 3 {
				b.thread = fmt.Sprint(policy, i)
				began := time.Now()
				resp := b.start(t.Context(), "r1")
				if i >= 3 { // the first ones open the partitions
					took = append(took, time.Since(began))
				}
				if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("answer is %d %s, %v", resp.StatusCode, text, err)
				}
				_ = resp.Body.Close()
			}
			slices.Sort(took)
			t.Logf("%s: until the response begins, p50 %v, p95 %v", policy, took[n/2], took[n*95/100])
			if p50 := took[n/2]; p50 > rejectWait {
				t.Errorf("p50 is %v", p50)
			}
		}
	})
}

// Starts that wait run one at a time, in the order of their claims, whichever process they came to.
func TestTurn_QueuedStartsRunInOrder(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		const n = 6
		var mu sync.Mutex
		var order []string
		var under, most int
		all := inTurn(t, DefaultConfig(k), 2, agents.Queue, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			run := runOf(r)
			mu.Lock()
			order = append(order, run)
			under++
			most = max(most, under)
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			under--
			mu.Unlock()
			r.Body = io.NopCloser(strings.NewReader(string(body)))
			says(w, r)
		})
		for _, b := range all {
			a := b.svc.agents["helper"]
			a.MaxQueued = n
		}
		var callers sync.WaitGroup
		var want []string
		for i := range n {
			run := fmt.Sprint("r", i)
			want = append(want, run)
			callers.Go(func() {
				resp := all[i%2].start(t.Context(), run)
				defer resp.Body.Close()
				if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "RUN_FINISHED") {
					t.Errorf("%s: %d %s, %v", run, resp.StatusCode, text, err)
				}
			})
			all[0].claims(i + 1)
		}
		callers.Wait()
		if !slices.Equal(order, want) || most != 1 {
			t.Errorf("they ran as %q, up to %d at a time, want %q one at a time", order, most, want)
		}
	})
}

func TestTurn_TheQueueIsBounded(t *testing.T) {
	all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 2, agents.Queue, runsOn)
	all[0].begins("r1")
	waiting := all[1].waits("r2")
	all[0].waits("r3")
	all[0].claims(3)
	a := all[1].refused("r4", http.StatusTooManyRequests, "queue-full", `the run "r1" holds`)
	if a.header.Get("Retry-After") != "5" || !strings.Contains(a.body, `"limit":"queue"`) {
		t.Errorf("answer is %s with %v", a.body, a.header)
	}
	_ = waiting.Close() // who leaves, leaves the queue
	all[0].claims(6)    // three runs' and the refused one's, and two that were withdrawn
	all[1].waits("r5")
	if got := all[0].endings(); len(got) != 0 {
		t.Errorf("runs ended: %v", got)
	}
	for _, r := range all[0].records() {
		if h := headersOf(t, r); h.Kind == record.KindInput && h.RunID != "r1" {
			t.Errorf("%s is recorded", h.RunID)
		}
	}
}

// A caller that waits has a stream already when its run is refused.
func TestTurn_AStartThatWaitsIsRefusedInItsStream(t *testing.T) {
	all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 2, agents.Queue, runsOn)
	all[0].begins("r1")
	waiting := all[1].waits("r2")
	_, leave, err := all[1].svc.line(t.Context(), target{key: "dev/t1"}) // as one more start
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	first := all[0].records()[0]
	kafkatest.Produce(t, all[0].cfg, &kgo.Record{Topic: first.Topic, Partition: first.Partition, Key: first.Key, Value: []byte("{}"),
		Headers: kafka.Headers(record.Headers{Version: 2, Kind: record.KindClaim, RunID: "r3", Seq: -1})})
	text, err := io.ReadAll(waiting)
	if err != nil || !strings.Contains(string(text), `data: {"type":"RUN_ERROR","message":"`) || !strings.Contains(string(text), "version 2") ||
		!strings.Contains(string(text), `"code":"skein-not-recorded"}`) {
		t.Errorf("its caller reads %q, %v", text, err)
	}
	all[1].refused("r4", http.StatusServiceUnavailable, "unavailable", "version 2") // without a claim
}

// A start that waits can be stopped, and is recorded as cancelled.
func TestTurn_AStartThatWaitsCanBeStopped(t *testing.T) {
	all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 2, agents.Queue, runsOn)
	all[0].begins("r1")
	waiting := all[1].waits("r2")
	if a, c := all[0].cancel("r2", ""); a.status != http.StatusOK || c.Status != record.StatusCancelled {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
	if text, err := io.ReadAll(waiting); err != nil || !strings.Contains(string(text), `"outcome":{"type":"cancelled"}`) {
		t.Errorf("its caller reads %q, %v", text, err)
	}
	if got := all[0].endings(); len(got) != 1 {
		t.Errorf("runs ended: %v", got)
	}
}

func TestTurn_CancelFirstStopsTheRunBefore(t *testing.T) {
	kafkatest.OnBoth(t, 3, func(t *testing.T, k kafka.Config) {
		all := inTurn(t, DefaultConfig(k), 2, agents.CancelFirst, runsOn)
		before := all[0].begins("r1")
		all[1].begins("r2")
		text, err := io.ReadAll(before)
		if err != nil || !strings.Contains(string(text), `"outcome":{"type":"cancelled"},"metadata":{"skein.stopped":{"reason":"`+reasonNext+`"}}`) {
			t.Errorf("the first caller reads %q, %v", text, err)
		}
		if got := all[0].endings(); len(got) != 1 || got["r1"] != record.StatusCancelled {
			t.Errorf("runs ended: %v", got)
		}
	})
}

// Of many starts under cancel-first, the last one runs, and each writes few requests to stop the others.
func TestTurn_ManyCancelFirst(t *testing.T) {
	const n = 20
	all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 2, agents.CancelFirst, runsOn)
	for _, b := range all {
		b.svc.cancelWait = kafkatest.Timeout
	}
	var callers sync.WaitGroup
	var answered atomic.Int64
	ctx, leave := context.WithCancel(t.Context())
	for i := range n {
		callers.Go(func() {
			resp := all[i%2].start(ctx, fmt.Sprint("r", i))
			answered.Add(1)
			_, _ = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		})
	}
	all[0].eventually("all but the last have ended", func() bool {
		return answered.Load() == n && len(all[0].endings()) == n-1 && len(all[0].svc.Runs().all())+len(all[1].svc.Runs().all()) == 1
	})
	stops := 0
	for _, r := range all[0].records() {
		if headersOf(t, r).Kind == record.KindCancel {
			stops++
		}
	}
	if stops > 3*n {
		t.Errorf("there are %d requests to stop, want %d at most", stops, 3*n)
	}
	leave()
	callers.Wait()
}

// A run that is sent to two processes runs once.
func TestTurn_TheSameRunTwice(t *testing.T) {
	for policy, reason := range map[agents.Runs]string{
		agents.Reject: "thread-busy", agents.Queue: "run-under-way", agents.CancelFirst: "run-under-way",
	} {
		t.Run(string(policy), func(t *testing.T) {
			all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 2, policy, runsOn)
			all[0].begins("r1")
			all[1].refused("r1", http.StatusConflict, reason, `the run "r1"`)
			if got := all[0].endings(); len(got) != 0 {
				t.Errorf("runs ended: %v", got)
			}
		})
	}
}

// left writes a claim as a process leaves it that was killed some time ago.
func (b *behind) left(run string, ago time.Duration) {
	b.t.Helper()
	key, err := record.ThreadKey("dev", b.thread)
	if err != nil {
		b.t.Fatal(err)
	}
	kafkatest.Produce(b.t, b.cfg, &kgo.Record{Topic: b.cfg.Topics().Events, Partition: record.Partition([]byte(key), 3), Key: []byte(key),
		Timestamp: time.Now().Add(-ago), Value: encoded(claim{ID: "of " + run}),
		Headers: kafka.Headers(record.Headers{Kind: record.KindClaim, RunID: run, Seq: -1})})
}

func TestTurn_AClaimWithoutAProcessExpires(t *testing.T) {
	all := inTurn(t, testConfig(kafkatest.Start(t, 3)), 1, agents.Reject, runsOn)
	b := all[0]
	b.left("dead", claimFor-500*time.Millisecond)
	b.refused("r1", http.StatusConflict, "thread-busy", `the run "dead" holds the thread`)
	time.Sleep(600 * time.Millisecond)
	b.begins("r2")

	first := &behind{stage: inTurn(t, testConfig(b.cfg), 1, agents.CancelFirst, runsOn)[0].in(t, "other"), agent: b.agent}
	first.svc.cancelWait = 300 * time.Millisecond
	first.left("dead", 0)
	first.refused("r1", http.StatusConflict, "not-ended", `the run "dead" holds the thread and has not ended within 300ms`)
}

// A claim is renewed in time even if Kafka took long for its first record, and a run does not begin if Kafka took too long.
func TestTurn_KafkaIsSlow(t *testing.T) {
	for took, want := range map[time.Duration]int{
		claimAgain - time.Second: http.StatusOK, claimAgain + 100*time.Millisecond: http.StatusServiceUnavailable,
	} {
		t.Run(took.String(), func(t *testing.T) {
			t.Parallel()
			c := kafkatest.StartCluster(t, 3)
			b := inTurn(t, testConfig(c.Config), 1, agents.Reject, runsOn)[0]
			var first atomic.Bool
			c.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.Fake.KeepControl()
				if !first.Swap(true) {
					c.Fake.SleepControl(func() { time.Sleep(took) })
				}
				return nil, nil, false
			})
			resp := b.start(t.Context(), "r1")
			defer resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("answer is %s, want %d", resp.Status, want)
			}
			claims := b.claims(2) // the second one renews or withdraws it
			if after := claims[1].Timestamp.Sub(claims[0].Timestamp); after > claimAgain+time.Second {
				t.Errorf("the next record comes after %v", after)
			}
		})
	}
}

// A process that is killed holds the thread no longer than claimFor.
func TestTurn_AProcessIsKilledWhileItHoldsTheThread(t *testing.T) {
	t.Parallel()
	cfg := testConfig(kafkatest.Start(t, 3))
	cfg.AckTimeout = time.Second
	all := inTurn(t, cfg, 2, agents.Queue, runsOn)
	all[0].begins("r1")
	waiting := bufio.NewReader(all[1].waits("r2"))
	began := time.Now()
	all[0].svc.producer.Close() // it writes nothing more
	for {
		line, err := waiting.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: ") {
			break
		}
	}
	if took := time.Since(began); took < claimFor-claimAgain-time.Second || took > claimFor+2*claimAgain+kafkatest.Timeout {
		t.Errorf("the next run began after %v", took)
	}
}

// Open runs of producers that make no claims count, as query knows them. Without query, they do not.
func TestTurn_CountsRunsThatMakeNoClaims(t *testing.T) {
	var open atomic.Value
	open.Store(`{"running":[{"runId":"old","agent":"helper"},{"runId":"plain~2","clientRunId":"plain","agent":"other"}]}`)
	query := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/threads/t1" {
			t.Errorf("query is asked %s", r.URL)
		}
		_, _ = io.WriteString(w, open.Load().(string))
	}))
	defer query.Close()
	cfg := proxyConfig(t)
	cfg.QueryURL = query.URL
	b := inTurn(t, cfg, 1, agents.Reject, runsOn)[0]
	b.refused("r1", http.StatusConflict, "thread-busy", `the run "plain" holds the thread`)
	b.claims(2) // and the refused one does not hold it either
	open.Store(`{"running":[{"runId":"old","agent":"helper"}]}`)
	b.begins("r2")
	query.Close()
	b = &behind{stage: b.in(t, "t2"), agent: b.agent}
	b.begins("r3")
}

func TestCancel_StopsWhateverRunOfAThreadIsOpen(t *testing.T) {
	all := proxies(t, proxyConfig(t), 2)
	for _, b := range all {
		b.svc.cancelWait = 500 * time.Millisecond
	}
	stop := func(b *behind) answer {
		return b.do(http.MethodPost, "/v1/threads/t1/cancel", strings.NewReader(`{"reason":"enough"}`))
	}
	if a := stop(all[0]); a.status != http.StatusConflict || a.Reason != "not-ended" {
		t.Errorf("answer is %d %s", a.status, a.body)
	}
	first, second := all[0].begins("r1"), all[1].begins("r2")
	other := &behind{stage: all[0].in(t, "t2"), agent: all[0].agent}
	other.begins("r1")
	if a := stop(all[1]); a.status != http.StatusOK || !strings.Contains(a.body, `"status":"cancelled"`) || !strings.Contains(a.body, `"runId":"r`) {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	all[1].eventually("both have ended", func() bool {
		if len(all[0].endings()) < 2 {
			stop(all[1]) // one that had only just begun may have missed the request, as the first end is the answer
			return false
		}
		return true
	})
	for _, rest := range []io.Reader{first, second} {
		if text, err := io.ReadAll(rest); err != nil || !strings.Contains(string(text), `"skein.stopped":{"reason":"enough"}`) {
			t.Errorf("a caller of the agent reads %q, %v", text, err)
		}
	}
	if !all[0].svc.Runs().Held("dev/t2", "r1") {
		t.Error("the run of another thread is stopped")
	}
	// A request that is repeated is not for runs that began after it.
	all[0].begins("r3")
	last := all[0].last(record.KindCancel)
	kafkatest.Produce(t, all[0].cfg, &kgo.Record{Topic: last.Topic, Partition: last.Partition, Key: last.Key,
		Value: encoded(stopRecord{Before: &last.Offset}), Headers: last.Headers})
	time.Sleep(100 * time.Millisecond)
	if !all[0].svc.Runs().Held("dev/t1", "r3") {
		t.Error("a run that began after the request is stopped")
	}
}

// All processes agree on the claims of a thread, even if they begin to read it at different times.
func TestLineup_IsThatOfTheRecordsAlone(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	offset := int64(0)
	rec := func(run string, c claim) *kgo.Record {
		offset++
		return &kgo.Record{Offset: offset, Timestamp: now, Value: encoded(c),
			Headers: kafka.Headers(record.Headers{Kind: record.KindClaim, RunID: run, Seq: -1})}
	}
	end := func(run string) *kgo.Record {
		offset++
		return &kgo.Record{Offset: offset, Timestamp: now, Value: []byte(`{"type":"RUN_ERROR","message":"x"}`),
			Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1})}
	}
	l := newLineup()
	take := func(m *kgo.Record, want ...string) {
		t.Helper()
		if _, _, err := l.take(m); err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, s := range l.standing {
			got = append(got, s.run)
		}
		if !slices.Equal(got, append([]string{}, want...)) {
			t.Errorf("claims that count are %q, want %q", got, want)
		}
	}
	at := func(o int64) *int64 { return &o }
	take(rec("a", claim{ID: "1"}), "a")
	take(rec("c", claim{ID: "3"}), "a", "c")
	take(rec("0", claim{ID: "0", At: at(0)}), "0", "a", "c") // of which the beginning was not read
	take(end("0"), "a", "c")
	take(rec("0", claim{ID: "0", At: at(0)}), "a", "c") // too late
	now = now.Add(claimFor)
	take(rec("c", claim{ID: "3", At: at(2)}), "a", "c")
	now = now.Add(time.Millisecond)
	take(rec("d", claim{ID: "4"}), "c", "d") // nobody has renewed a's
	take(rec("a", claim{ID: "1", At: at(1)}), "a", "c", "d")
	for id, want := range map[string]bool{"1": true, "3": false, "5": true} {
		if _, lost, _, _ := (&line{lineup: l}).look(id, nil); lost != want {
			t.Errorf("claim %s may have let in a later one: %v, want %v", id, lost, want)
		}
	}
	take(rec("c", claim{ID: "3", At: at(2), Withdrawn: true}), "a", "d")
	for _, name := range []string{record.HeaderCopiedFrom, record.HeaderRetryOf} {
		again := rec("e", claim{ID: "5"})
		again.Headers = append(again.Headers, kgo.RecordHeader{Key: name, Value: []byte("0:0")})
		take(again, "a", "d")
	}
}

// Readers that begin at different times find the same claims before each later one, whatever was written before they began, by clocks that
// differ.
func TestLineup_ReadersThatBeginAtDifferentTimesAgree(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		now := time.UnixMilli(1_000_000)
		var log []*kgo.Record
		clocks := time.Duration(1+r.IntN(5)) * time.Second
		add := func(kind record.Kind, run string, value []byte) {
			log = append(log, &kgo.Record{Offset: int64(len(log)), Timestamp: now.Add(time.Duration(r.Int64N(int64(clocks)))), Value: value,
				Headers: kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1})})
		}
		type made struct {
			run  string
			c    claim
			over time.Time // its process may still write it for a moment
		}
		var all []*made
		for range 100 {
			now = now.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
			if len(all) == 0 || r.IntN(4) == 0 {
				at := int64(len(log))
				m := &made{run: fmt.Sprint("r", r.IntN(10)), c: claim{ID: fmt.Sprint(at)}}
				add(record.KindClaim, m.run, encoded(m.c))
				m.c.At = &at
				all = append(all, m)
				continue
			}
			m := all[max(0, len(all)-1-r.IntN(6))]
			switch over := !m.over.IsZero(); {
			case over && now.Sub(m.over) > claimWindow-claimFor-clocks:
			case over || r.IntN(8) > 1:
				add(record.KindClaim, m.run, encoded(m.c))
			case r.IntN(2) == 0:
				c := m.c
				c.Withdrawn, m.over = true, now
				add(record.KindClaim, m.run, encoded(c))
			default:
				for _, o := range all {
					if o.run == m.run && o.over.IsZero() {
						o.over = now
					}
				}
				add(record.KindEvent, m.run, []byte(`{"type":"RUN_ERROR","message":"x"}`))
			}
		}
		read := func(from []*kgo.Record) map[string][]string {
			l, out := newLineup(), map[string][]string{}
			for _, m := range from {
				id, before, err := l.take(m)
				if err != nil {
					t.Fatal(err)
				}
				if id != "" && (from[0] == log[0] || m.Timestamp.Sub(from[0].Timestamp) >= claimWindow) {
					out[id] = []string{}
					for _, s := range before {
						out[id] = append(out[id], s.id)
					}
				}
			}
			return out
		}
		first := read(log)
		for id, before := range read(log[r.IntN(len(log)):]) {
			if !slices.Equal(before, first[id]) {
				t.Fatalf("seed %d: before claim %s a reader finds %q, one that began earlier %q", seed, id, before, first[id])
			}
		}
	}
}

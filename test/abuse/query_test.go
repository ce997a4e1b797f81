package abuse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// reads is a site with a query stage over threads of both tenants. They are written as compactor and indexer would have.
type reads struct {
	*Site
	*Stage
	store *sqlite.Store
	file  string
	// next is the next offset of each partition of skein.events, records that of skein.runs.
	next, records map[int32]int64
}

// newReads makes the store. Write what there is to read, then start the stage.
func newReads(t *testing.T) *reads {
	r := &reads{Site: NewSite(t), next: map[int32]int64{}, records: map[int32]int64{}}
	r.file = filepath.Join(r.Dir, "store.db")
	var err error
	if r.store, err = sqlite.Open(t.Context(), r.file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	if err := r.store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.run(Honest, "chat", "r", 20)
	r.chain(Honest, "long", 20)
	return r
}

func (r *reads) start() { r.Stage = r.Site.Start("query", "--sqlite", r.file) }

// fatal ends the test on an error.
func (r *reads) fatal(err error) {
	r.TB.Helper()
	if err != nil {
		r.TB.Fatal(err)
	}
}

// oneRun folds all records into one run, which has no parent.
type oneRun struct{ *fold.Run }

func (o oneRun) Find(*fold.Decoded) (*fold.Run, fold.Outcome, error) { return o.Run, "", nil }

func (o oneRun) Begin(run *fold.Run, _ *fold.Decoded, in *agui.RunAgentInput) (*compact.Run, error) {
	started, _ := fold.Start(run.ID, lineage.ParentNone, lineage.History{}, in, 0)
	return started, nil
}

// run writes a run of so many messages of a character: its events, its record and its rows.
func (r *reads) run(who, thread, id string, messages int) {
	r.TB.Helper()
	key, err := record.ThreadKey(who, thread)
	r.fatal(err)
	partition := record.Partition([]byte(key), Partitions)
	run := fold.NewRun(thread, id, id)
	loop := fold.NewLoop(oneRun{run})
	first := r.next[partition]
	var log []*kgo.Record
	// Brokers take times of up to five minutes ahead, and the client gives records of half a minute ago up.
	begun, step := time.Now().Truncate(time.Millisecond), min(100*time.Millisecond, max(time.Millisecond, (4*time.Minute/time.Duration(messages)).Truncate(time.Millisecond)))
	add := func(value string) {
		offset := r.next[partition]
		r.next[partition]++
		h := record.Headers{Kind: record.KindEvent, RunID: id, Seq: offset - first}
		at := begun.Add(time.Duration(len(log)) * step)
		log = append(log, &kgo.Record{Topic: r.Kafka.Topics().Events, Partition: partition, Key: []byte(key), Value: []byte(value), Headers: kafka.Headers(h), Timestamp: at})
		_, outcome, err := loop.Next(record.Event{Partition: partition, Offset: offset, Time: at, Headers: h, Value: []byte(value)})
		if err != nil || outcome != fold.Folded {
			r.TB.Fatalf("folding %s: %s, %v", value, outcome, err)
		}
	}
	add(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, id))
	for i := range messages {
		add(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d","role":"assistant","delta":"a"}`, i))
	}
	add(fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, id))
	kafkatest.Produce(r.TB, r.Kafka, log...)
	given := &record.Run{Tenant: who, ThreadID: thread, RunID: id, FoldVersion: compact.Version}
	given.ParentBy, given.BranchID, given.RootRunID = record.ParentNone, id, id
	given.Raw.Partition, given.Raw.Ranges = partition, [][2]int64{{first, r.next[partition]}}
	made, _ := run.Record(given, fold.Origin{}, first, r.next[partition])
	value, err := record.EncodeRun(made)
	r.fatal(err)
	runKey, err := record.RunKey(who, thread, id)
	r.fatal(err)
	kafkatest.Produce(r.TB, r.Kafka, &kgo.Record{
		Topic: r.Kafka.Topics().Runs, Partition: partition, Key: []byte(runKey), Value: value, Headers: kafka.Headers(record.Headers{Kind: record.KindRun, RunID: id, Seq: -1}),
	})
	r.write(r.records[partition], made)
	r.records[partition]++
}

// erasure writes the erasure of a thread, and returns its position.
func (r *reads) erasure(who, thread string) record.Position {
	r.TB.Helper()
	key, err := record.ThreadKey(who, thread)
	r.fatal(err)
	at := record.Position{Partition: record.Partition([]byte(key), Partitions)}
	at.Offset = r.next[at.Partition]
	r.next[at.Partition]++
	kafkatest.Produce(r.TB, r.Kafka, &kgo.Record{
		Topic: r.Kafka.Topics().Events, Partition: at.Partition, Key: []byte(key), Value: []byte("{}"), Headers: kafka.Headers(record.Headers{Kind: record.KindErase, Seq: -1}),
	})
	return at
}

// chain writes the rows of a thread of runs that go on from one another, of a message each.
func (r *reads) chain(who, thread string, runs int) {
	r.TB.Helper()
	key, err := record.ThreadKey(who, thread)
	r.fatal(err)
	partition := record.Partition([]byte(key), Partitions)
	var all []*record.Run
	for i := range runs {
		id, at := fmt.Sprint("run-", i), time.Now().Add(time.Duration(i-runs)*time.Second).UTC()
		run := &record.Run{
			Tenant: who, ThreadID: thread, RunID: id, Status: record.StatusFinished, StartedAt: at, EndedAt: &at, FoldVersion: compact.Version,
			Messages:     []agui.Message{{ID: id, Role: agui.RoleAssistant, Raw: json.RawMessage(fmt.Sprintf(`{"id":%q,"role":"assistant","content":"a"}`, id))}},
			MessageCount: i + 1, Stats: record.Stats{Events: map[string]int64{"RUN_STARTED": 1, "TEXT_MESSAGE_CHUNK": 1, "RUN_FINISHED": 1}, Messages: 1},
			Raw: record.Raw{Partition: partition, First: int64(i), Next: int64(i) + 1, NextSeq: -1},
		}
		run.ParentBy, run.BranchID, run.RootRunID, run.Depth = record.ParentNone, "run-0", "run-0", i
		if i > 0 {
			run.ParentBy, run.ParentRunID, run.Base = record.ParentLatest, all[i-1].RunID, all[i-1].RunID
		}
		all = append(all, run)
	}
	r.write(0, all...)
}

// write writes rows of run records, which lie at an offset.
func (r *reads) write(version int64, runs ...*record.Run) {
	r.TB.Helper()
	var entries []store.Entry
	for _, run := range runs {
		entries = append(entries, store.Entry{Partition: run.Raw.Partition, Version: version, Tenant: run.Tenant, ThreadID: run.ThreadID, RunID: run.RunID, Run: run})
	}
	r.fatal(r.store.Write(r.TB.Context(), entries))
}

// honest reads a short history and a thread's lineage in turn.
func (r *reads) honest(web *http.Client) func(ctx context.Context, n int) error {
	paths := []string{"/v1/threads/long/history", "/v1/threads/long/lineage", "/v1/threads"}
	return func(ctx context.Context, n int) error {
		resp, err := web.Do(r.Request(ctx, Honest, http.MethodGet, r.URL+paths[n%len(paths)], nil))
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // only read
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		return err
	}
}

// answers counts what an attacker got.
type answers struct {
	mu    sync.Mutex
	by    map[string]int
	sent  int64
	hints map[int]string
}

func (a *answers) note(what string, sent int64) {
	a.add(what, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent += sent
}

func (a *answers) add(what string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[what] += n
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(a.by)) {
		parts = append(parts, fmt.Sprintf("%s × %d", what, a.by[what]))
	}
	for _, status := range slices.Sorted(maps.Keys(a.hints)) {
		parts = append(parts, fmt.Sprintf("%d: %.120s", status, a.hints[status]))
	}
	return strings.Join(parts, ", ")
}

// answered is how many answers the attackers have had.
func (a *answers) answered() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, times := range a.by {
		n += times
	}
	return n
}

// problem keeps what a refusal says, and fails the test where it does not say what to do.
func (a *answers) problem(tb testing.TB, resp *http.Response, body []byte) {
	tb.Helper()
	detail, _ := refusal(tb, resp, body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hints[resp.StatusCode] = detail
}

// attack has so many callers ask for paths again and again while the honest tenant is measured, and reports.
func (r *reads) attack(name string, callers int, paths ...string) *answers {
	r.TB.Helper()
	got := &answers{by: map[string]int{}, hints: map[int]string{}}
	t := &http.Transport{MaxIdleConnsPerHost: callers}
	web := &http.Client{Transport: t}
	r.measured(name, got, func(ctx context.Context) {
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for n := i; ctx.Err() == nil; n++ {
					path := paths[n%len(paths)]
					resp, err := web.Do(r.Request(ctx, Hostile, http.MethodGet, r.URL+path, nil))
					if err != nil {
						continue
					}
					if resp.StatusCode >= 400 && resp.StatusCode != http.StatusTooEarly {
						body, err := io.ReadAll(resp.Body)
						if err == nil {
							got.problem(r.TB, resp, body)
						}
					} else {
						_, _ = io.Copy(io.Discard, resp.Body) // it may be broken off
					}
					_ = resp.Body.Close()
					if ctx.Err() == nil {
						got.note(fmt.Sprint(resp.StatusCode), int64(len(path)))
					}
				}
			})
		}
		all.Wait()
		t.CloseIdleConnections()
	})
	return got
}

// measured has the honest tenant read before and during an attack, which lasts until its context ends, and reports.
func (r *reads) measured(name string, got *answers, attack func(ctx context.Context)) {
	r.TB.Helper()
	calls := size(1500, 40) // of 20 ms at least
	meter := Measure(r.TB, 20*time.Millisecond, r.honest(r.Web()))
	meter.Await(r.TB, calls)
	before := meter.Take(r.TB)
	ctx, stop := context.WithCancel(r.TB.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		attack(ctx)
	}()
	meter.Await(r.TB, calls)
	// On a busy machine the attackers may have had no answer by then, and what they get is a part of what is shown.
	for until := time.Now().Add(10 * time.Second); got.answered() < 40 && time.Now().Before(until); {
		meter.Await(r.TB, 5)
	}
	during := meter.Take(r.TB)
	meter.Stop()
	stop()
	<-over
	Report(r.TB, r.Stage, Row{Attack: name, Sent: got.sent, Before: before, During: during, Answer: got.String()})
	share, most := held(before, max(100*time.Millisecond, 10*before.At(.99)))
	if took := during.At(share); took > most {
		r.TB.Errorf("the honest tenant's reads took %v (p%.0f), at most %v are wanted", took, 100*share, most)
	}
}

// held is which share of the honest tenant's calls has to be within which time: of nearly all the given one in the long form. In the short form
// attackers and stage share the machine's cores with other tests: the row tells how long single calls took, and only a stage that stands still
// for most of them fails.
func held(before Times, long time.Duration) (share float64, most time.Duration) {
	if *Long {
		return .99, long
	}
	return .5, before.At(.5) + 5*time.Second
}

// size is how large something is in the long form of an attack, and in the short one.
func size(long, short int) int {
	if *Long {
		return long
	}
	return short
}

// What is folded again takes no more memory than was counted, and what is too large is refused before it is taken.
func TestQuery_VerifyOfManyMessages(t *testing.T) {
	r := newReads(t)
	large := size(200_000, 150_000)
	r.run(Hostile, "large", "r", large)
	r.run(Hostile, "fits", "r", 50_000)
	r.start()
	got := r.attack(fmt.Sprintf("verify of %d and 50000 messages × 30", large), 30, "/v1/threads/large/runs/r/verify", "/v1/threads/fits/runs/r/verify")
	if got.by["422"] == 0 || got.by["200"]+got.by["429"] == 0 {
		t.Errorf("the attacker got %s", got)
	}
}

func TestQuery_StateAtAnEvent(t *testing.T) {
	r := newReads(t)
	messages := size(40_000, 20_000)
	for i := range 4 {
		r.run(Hostile, fmt.Sprint("t", i), "r", messages)
	}
	r.start()
	var paths []string
	for i := range 4 {
		for _, call := range []string{"state?at=%d", "state?from=%d", "changes?message=%d"} {
			paths = append(paths, fmt.Sprintf("/v1/threads/t%d/runs/r/"+call, i, 7_000))
		}
	}
	paths = slices.DeleteFunc(paths, func(p string) bool { return strings.Contains(p, "message=") && !strings.Contains(p, "t0") })
	got := r.attack(fmt.Sprintf("state at an event and changes of %d messages × 30", messages), 30, paths...)
	if got.by["200"] == 0 && *Long { // the short form is over before the first answer, on a busy machine
		t.Errorf("the attacker got %s", got)
	}
}

func TestQuery_HistoryAndLineageOfALongThread(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "long", size(40_000, 1_500))
	r.start()
	got := r.attack("history × 20, lineage × 20 of a long thread", 40, "/v1/threads/long/history", "/v1/threads/long/lineage")
	if got.by["200"] == 0 || got.by["429"] == 0 && *Long {
		t.Errorf("the attacker got %s", got)
	}
}

func TestQuery_WaitersForTheIndex(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "short", 3)
	r.start()
	key, err := record.ThreadKey(Hostile, "short")
	r.fatal(err)
	at := record.Position{Partition: record.Partition([]byte(key), Partitions), Offset: 1 << 40}
	got := r.attack("atLeast × 2,000", 2_000, "/v1/threads/short?atLeast="+url.QueryEscape(at.String()))
	if waited := got.by["425"] + got.by["429"]; waited < got.answered() || waited == 0 && *Long { // as above
		t.Errorf("the attacker got %s", got)
	}
}

// Searches and statistics that read all rows of the tenant.
func TestQuery_SearchesAndStatistics(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "long", size(40_000, 1_500))
	r.start()
	got := r.attack("searches, statistics and open interrupts × 60", 60, "/v1/runs?words=b", "/v1/statistics", "/v1/interrupts")
	if got.by["200"] == 0 && *Long || got.by["404"]+got.by["400"] > 0 {
		t.Errorf("the attacker got %s", got)
	}
}

// Replays at a slow pace leave raw readers to others, as do dead letters and those who wait for an erasure that no compactor answers, and a pace
// beyond all bounds is refused.
func TestQuery_ReplaysThatHoldTheirSlot(t *testing.T) {
	r := newReads(t)
	r.run(Hostile, "chat", "r", 500)
	erasure := fmt.Sprintf("/v1/erasures/%s?wait=true", r.erasure(Hostile, "gone"))
	r.start()
	got := r.attack("replay at a pace of 0.001 and 1e-300, dead letters and the state of an erasure × 64", 64,
		"/v1/threads/chat/events?pace=0.001", "/v1/threads/chat/events?pace=1e-300", "/v1/dead-letters", erasure)
	if got.by["400"] == 0 || got.by["429"] == 0 {
		t.Errorf("the attacker got %s", got)
	}
	resp, err := r.Web().Do(r.Request(t.Context(), Honest, http.MethodGet, r.URL+"/v1/threads/chat/events", nil))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || strings.Count(string(body), "\n") != 22 {
		t.Errorf("the honest tenant's replay: %d %.200s %v", resp.StatusCode, body, err)
	}
}

func TestQuery_ReplaysAtFullSpeed(t *testing.T) {
	r := newReads(t)
	r.run(Hostile, "chat", "r", size(100_000, 30_000))
	r.start()
	if got := r.attack("replay without a pace × 64", 64, "/v1/threads/chat/events"); got.by["200"] == 0 && *Long {
		t.Errorf("the attacker got %s", got)
	}
}

// Readers come again and again to a run that goes on, which has no record yet: each has the whole run read and folded.
func TestQuery_Attach(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "long", size(40_000, 1_500))
	open := r.open(Hostile, size(36_000, 5_000))
	r.Stage = r.Site.Start("query", "--sqlite", r.file, "--stream-life", "3s")
	got := r.attack("stream of a run at the end of a long thread × 40", 40, fmt.Sprintf("/v1/threads/long/runs/run-%d/stream", size(40_000, 1_500)-1))
	if got.by["200"] == 0 && *Long {
		t.Errorf("the attacker got %s", got)
	}
	got = r.attack("stream of a run that goes on × 40", 40, "/v1/threads/"+open+"/stream", "/v1/threads/"+open+"/runs/r/stream")
	if got.by["200"] == 0 && *Long {
		t.Errorf("the attacker got %s", got)
	}
}

// Readers resume, or join, a run of the largest events, which are a few kilobytes where they are sent: each reads the log by itself.
func TestQuery_AttachToLargeEvents(t *testing.T) {
	r := newReads(t)
	thread, first := r.openWith(Hostile, slices.Repeat([]string{`{"type":"CUSTOM","name":"n","value":"` + strings.Repeat("x", 14<<20) + `"}`}, size(100, 20)))
	r.Stage = r.Site.Start("query", "--sqlite", r.file, "--stream-life", "1s")
	path := "/v1/threads/" + thread + "/stream"
	got := r.attack("stream of a run of events of 14 MiB × 40", 40, path, path+"?lastEventId="+url.QueryEscape(first.String()))
	if got.by["200"] == 0 && *Long {
		t.Errorf("the attacker got %s", got)
	}
}

// open writes messages of a run that goes on, of a character each, to a partition that has nothing else, and returns its thread.
func (r *reads) open(who string, messages int) (thread string) {
	r.TB.Helper()
	events := make([]string, messages)
	for i := range events {
		events[i] = fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d","role":"assistant","delta":"a"}`, i)
	}
	thread, _ = r.openWith(who, events)
	return thread
}

// openWith is open with other events. It also returns where the run begins.
func (r *reads) openWith(who string, events []string) (thread string, first record.Position) {
	r.TB.Helper()
	used := map[int32]bool{}
	partition := func(who, thread string) (string, int32) {
		key, err := record.ThreadKey(who, thread)
		r.fatal(err)
		return key, record.Partition([]byte(key), Partitions)
	}
	for _, t := range [][2]string{{Honest, "chat"}, {Honest, "long"}, {Hostile, "long"}} {
		_, p := partition(t[0], t[1])
		used[p] = true
	}
	for n := 0; ; n++ {
		thread = fmt.Sprint("open-", n)
		key, p := partition(who, thread)
		if used[p] {
			continue
		}
		var log []*kgo.Record
		bytes := 0
		for i, value := range append([]string{fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":"r"}`, thread)}, events...) {
			log = append(log, &kgo.Record{Topic: r.Kafka.Topics().Events, Partition: p, Key: []byte(key), Value: []byte(value),
				Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: "r", Seq: int64(i)})})
			if bytes += len(value); bytes > 16<<20 || i == len(events) {
				kafkatest.Produce(r.TB, r.Kafka, log...)
				log, bytes = nil, 0
			}
		}
		return thread, record.Position{Partition: p}
	}
}

// Answers that nobody reads hold no turn, and no more memory than the tenant's share, that of compressing them included. Those that need no credentials
// hold little.
func TestQuery_AnswersThatNobodyReads(t *testing.T) {
	r := newReads(t)
	r.chain(Hostile, "long", size(40_000, 1_500))
	r.chain(Hostile, "middle", 1_500)
	r.start()
	resp, err := r.Web().Do(r.Request(t.Context(), Honest, http.MethodGet, r.URL+"/", nil))
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	script := regexp.MustCompile(`/assets/[^"]+\.js`).FindString(string(page))
	if err != nil || script == "" {
		t.Fatalf("the page has no script: %s (%v)", page, err)
	}
	key := "Authorization: Bearer " + r.Keys[Hostile] + "\r\n"
	for _, a := range []struct {
		name, path, header string
		callers            int
	}{
		{"answers that nobody reads", "/v1/threads/long/lineage", key, 100},
		{"answers that nobody reads, compressed", "/v1/threads/middle/lineage", key + "Accept-Encoding: gzip\r\n", size(2_000, 100)},
		{"the page's script, compressed, that nobody reads, without credentials", script, "Accept-Encoding: gzip\r\n", size(6_000, 100)},
	} {
		t.Run(a.name, func(t *testing.T) {
			of := *r
			site := *r.Site
			site.TB = t
			of.Site = &site
			got := &answers{by: map[string]int{}, hints: map[int]string{}}
			of.measured(fmt.Sprintf("%s × %d", a.name, a.callers), got, func(ctx context.Context) { of.neverRead(ctx, a.callers, a.path, a.header, got) })
		})
	}
}

// neverRead has so many callers ask for a path, each on a connection of its own of which it reads nothing until ctx ends; it asks again on another
// one where the stage gives up.
func (r *reads) neverRead(ctx context.Context, callers int, path, header string, got *answers) {
	host := strings.TrimPrefix(r.URL, "http://")
	atOnce(callers, func(int) {
		for ctx.Err() == nil {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				time.Sleep(100 * time.Millisecond) // this process has no more of them for now
				continue
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // or the system takes the answer for it; a connection that is up allows that
			n, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\n"+header+"\r\n")
			got.note("not read", int64(n))
			for err == nil && ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
					_, err = io.WriteString(conn, "\n") // an error where it was closed
				}
			}
			_ = conn.Close()
		}
	})
}

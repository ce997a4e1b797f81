package abuse

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/quota"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

var (
	soakFor  = flag.Duration("abuse.soak", 0, "how long TestSoak attacks all stages at random; 0 skips it")
	soakOnly = flag.String("abuse.only", "", "a regular expression: TestSoak makes the attacks only whose names match")
	soakSeed = flag.Uint64("abuse.seed", 0, "the random choices of TestSoak; 0 chooses one and logs it")
)

// backlog is how long folding what the attacks have left on their partitions may take. Nothing but the time of two processors bounds what those leave that
// write past ingest, where only Kafka's own quotas hold, which this test does not set.
const backlog = 35 * time.Minute

// soak is all stages beside each other, an honest tenant that publishes and reads all the time, and attackers.
type soak struct {
	*pipeline
	ingest *Stage
	web    *http.Client // the attackers' connections
	own    *http.Client // the honest tenant's
	began  time.Time
	talked atomic.Int64 // events of Limited's proxied runs that their callers have had

	mu        sync.Mutex
	published []string // the honest tenant's runs, as thread/run, each acknowledged whole
	made      map[string]*made
}

// made says how often an attack was made, and what its authors were answered.
type made struct {
	times int
	got   *answers
}

// soakAttack is one of all stages. It ends with its context, or before.
type soakAttack struct {
	run func(ctx context.Context, random *rand.Rand, got *answers)
	// want must be among the answers, of all times together; "" demands nothing.
	want string
}

// All attacks at random, two at a time, beside an honest tenant whose records are complete at the end. No stage ends, exceeds its limit of memory,
// or, within half an hour and more, holds more in the last third of the time than in the first. A tenant with quotas is among the attackers: each
// refusal names its limit, and its agents are read no faster than its quota allows.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("it goes on for -abuse.soak DURATION; see make abuse-soak")
	}
	*Long = true // a real Kafka, and attacks at full size
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: -abuse.seed=%d chooses the same attacks again", seed, seed)
	s := &soak{pipeline: compacting(t), made: map[string]*made{}}
	if err := os.WriteFile(s.QuotaFile, []byte(quotas+hostileQuota), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ingest, s.web, s.own = s.Start("ingest", agentsOf(t)...), s.Web(), s.Web()
	s.prepare()
	s.began = time.Now()
	attacks := s.all()

	end := time.Now().Add(*soakFor)
	ctx, stop := context.WithDeadline(t.Context(), end)
	defer stop()
	memory := s.sample(ctx)
	honest := MeasureBeside(t, 4, 100*time.Millisecond, func(ctx context.Context, n int) error {
		err := s.honest(ctx, n)
		if err != nil && ctx.Err() == nil { // which fails the test at its end, hours later
			t.Logf("after %v: run %d of the honest tenant: %v", time.Since(s.began).Round(time.Second), n, err)
		}
		return err
	})
	var attackers sync.WaitGroup
	for i := range 2 {
		attackers.Go(func() { s.attackUntil(ctx, attacks, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	<-ctx.Done()
	attackers.Wait()
	t.Logf("attacks are over after %v, with %d of the honest tenant's runs visible", time.Since(s.began).Round(time.Second), honest.Calls())
	s.awaitWithin(backlog) // the honest tenant's runs lie behind the attacks' on some partitions
	honest.Await(t, 20)
	during := honest.Take(t)
	honest.Stop()
	s.await()
	s.complete()

	for _, name := range slices.Sorted(maps.Keys(s.made)) {
		m := s.made[name]
		t.Logf("%d × %s: %s", m.times, name, m.got)
		if want := attacks[name].want; !strings.Contains(m.got.String(), want) {
			t.Errorf("%q got %s: want %s among it", name, m.got, want)
		}
	}
	s.isSlowedDown()
	t.Logf("%d runs of the honest tenant, from the first byte to a visible history: median %v, p99 %v, longest %v", len(s.published), during.At(.5).Round(time.Millisecond), during.At(.99).Round(time.Millisecond), during.At(1).Round(time.Millisecond))
	for _, stage := range s.stages() {
		select {
		case <-stage.Ended:
			t.Errorf("%s has ended", stage.Name)
			continue
		default:
		}
		samples := <-memory[stage.Name]
		first, last := peak(samples[:len(samples)/3]), peak(samples[2*len(samples)/3:])
		t.Logf("| %s | %d MiB at most in the first third, %d in the last, of %d |", stage.Name, first>>20, last>>20, stage.Limit>>20)
		// Within minutes, what a third holds at most is decided by which attacks come in it.
		if most := first + first/4 + 64<<20; last > most && *soakFor >= 30*time.Minute {
			t.Errorf("%s had %d MiB resident in the last third of the time, %d in the first: memory is not flat", stage.Name, last>>20, first>>20)
		}
		if all, err := stage.PeakMemory(); err != nil || all > stage.Limit {
			t.Errorf("%s had %d MiB resident (%v), the chart gives it %d", stage.Name, all>>20, err, stage.Limit>>20)
		}
	}
}

func (s *soak) stages() []*Stage { return []*Stage{s.ingest, s.compactor, s.indexer, s.query} }

func peak(samples []int64) int64 {
	if len(samples) == 0 {
		return 0
	}
	return slices.Max(samples)
}

// sample notes what each stage holds, every second until ctx ends.
func (s *soak) sample(ctx context.Context) map[string]chan []int64 {
	out := map[string]chan []int64{}
	for _, stage := range s.stages() {
		done := make(chan []int64, 1)
		out[stage.Name] = done
		go func() {
			var samples []int64
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					done <- samples
					return
				case <-tick.C:
					if now, err := stage.Memory(); err == nil { // else it has ended, which the test sees
						samples = append(samples, now)
					}
				}
			}
		}()
	}
	return out
}

// prepare writes what there is to read of the hostile tenant: a long thread, a run of many messages, and one that goes on.
func (s *soak) prepare() {
	s.TB.Helper()
	var records []*kgo.Record
	for i := range 2_000 {
		records = append(records, s.runOf(Hostile, "long", fmt.Sprint("run-long-", i), fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","role":"assistant","delta":"a"}`, i))...)
	}
	messages := make([]string, 20_000)
	for i := range messages {
		messages[i] = fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"%d","role":"assistant","delta":"a"}`, i)
	}
	records = append(records, s.runOf(Hostile, "many", "many", messages...)...)
	going := s.runOf(Hostile, "going", "going", messages[:5_000]...)
	s.publish(s.TB.Context(), append(records, going[:len(going)-1]...))
	for _, last := range []string{"/v1/threads/long/runs/run-long-1999", "/v1/threads/many/runs/many", "/v1/threads/going/runs/going"} {
		process.Eventually(s.TB, last+" can be read", func() (string, bool) {
			resp, err := s.web.Do(s.Request(s.TB.Context(), Hostile, http.MethodGet, s.query.URL+last, nil))
			if err != nil {
				return err.Error(), false
			}
			return resp.Status, resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
		})
	}
}

func (s *soak) publish(ctx context.Context, records []*kgo.Record) {
	s.TB.Helper()
	if err := s.producer.ProduceSync(ctx, records...).FirstErr(); err != nil && ctx.Err() == nil {
		s.TB.Errorf("publishing: %v", err)
	}
}

// honest publishes a run through ingest and reads its history until it is there.
func (s *soak) honest(ctx context.Context, n int) error {
	thread, run := fmt.Sprint("honest-", n%64), fmt.Sprint("honest-run-", n)
	path := "/v1/threads/" + thread + "/runs/" + run
	body := fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run) + "\n" +
		fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m-%s","role":"assistant","delta":"hello from %s"}`, run, run) + "\n" +
		fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":%q,"runId":%q}`, thread, run) + "\n"
	if n%4 == 0 {
		s.own.CloseIdleConnections() // the next calls come on new connections
	}
	status, text, err := s.do(ctx, http.MethodPost, s.ingest.URL+path+"/events", body)
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("publishing is answered %d %s (%w)", status, text, err)
	}
	s.mu.Lock()
	s.published = append(s.published, thread+"/"+run)
	s.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	reads, acknowledged := 0, time.Now()
	defer func() { // many reads: it lies behind attacks on its partition; few: one of them took long
		if took := time.Since(acknowledged); took > time.Minute {
			s.TB.Logf("after %v: %s was visible %v behind its acknowledgement, at read %d", time.Since(s.began).Round(time.Second), path, took.Round(time.Millisecond), reads)
		}
	}()
	for ; ; reads++ {
		switch status, text, err = s.do(ctx, http.MethodGet, s.query.URL+path+"/history", ""); {
		case ctx.Err() != nil:
			return nil
		case err != nil || status != http.StatusOK && status != http.StatusNotFound:
			return fmt.Errorf("reading is answered %d %.300s (%w)", status, text, err)
		case status == http.StatusOK && strings.Contains(text, "hello from "+run):
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// do makes a request of the honest tenant. One that takes long by itself is logged: most runs that take long lie behind attacks on their partition.
func (s *soak) do(ctx context.Context, method, url, body string) (int, string, error) {
	var conn httptrace.GotConnInfo
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > 10*time.Second {
			s.TB.Logf("after %v: %s %s took %v, on a connection (used before: %v, idle for %v)",
				time.Since(s.began).Round(time.Second), method, url, took.Round(time.Millisecond), conn.Reused, conn.IdleTime)
		}
	}()
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { conn = got }})
	resp, err := s.own.Do(s.Request(traced, Honest, method, url, body))
	if err != nil {
		return 0, "", fmt.Errorf("asking on a connection (used before: %v, idle for %v): %w", conn.Reused, conn.IdleTime, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// complete demands the record of each run that was acknowledged, whose text was read once it was visible, and that none of the honest tenant's events
// is a dead letter. The index may follow the compactor a while later.
func (s *soak) complete() {
	s.TB.Helper()
	var mu sync.Mutex
	missing, first := 0, ""
	deadline := time.Now().Add(process.Patience)
	next := make(chan string)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for of := range next {
				thread, run, _ := strings.Cut(of, "/")
				why := s.incomplete(thread, run)
				for why != "" && time.Now().Before(deadline) {
					time.Sleep(200 * time.Millisecond)
					why = s.incomplete(thread, run)
				}
				if why != "" {
					mu.Lock()
					if missing++; first == "" {
						first = of + ": " + why
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, of := range s.published {
		next <- of
	}
	close(next)
	readers.Wait()
	if missing > 0 {
		s.TB.Errorf("%d of %d runs of the honest tenant are not as they were published; the first one: %s", missing, len(s.published), first)
	}
	if status, text, err := s.do(s.TB.Context(), http.MethodGet, s.query.URL+"/v1/dead-letters", ""); err != nil || status != http.StatusOK || strings.Contains(text, `"reason"`) {
		s.TB.Errorf("the honest tenant's dead letters: %d %s (%v)", status, text, err)
	}
}

// incomplete says what a run's record lacks.
func (s *soak) incomplete(thread, run string) string {
	status, text, err := s.do(s.TB.Context(), http.MethodGet, s.query.URL+"/v1/threads/"+thread+"/runs/"+run, "")
	var got struct {
		Status string
		Stats  struct {
			Messages int
			Events   map[string]int
		}
		Truncated bool
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &got)
	}
	if err != nil || status != http.StatusOK || got.Status != "finished" || got.Truncated || got.Stats.Messages != 1 || len(got.Stats.Events) != 3 {
		return fmt.Sprintf("%d %.500s (%v)", status, text, err)
	}
	return ""
}

// hostileQuota is what docs/operations.md gives a tenant of bytes a second. Without it, an event of 14 MB is a post of 0.1 MB, and one attack of seconds leaves
// gigabytes to be folded.
const hostileQuota = "  " + Hostile + ":\n    bytes_per_second: 10000000\n"

// isSlowedDown demands that quotas held what no answer shows: proxied runs were slowed down, and runs that never end were ended.
func (s *soak) isSlowedDown() {
	s.TB.Helper()
	most := int64(limitedEvents * (quota.Window + time.Since(s.began)).Seconds())
	s.TB.Logf("%d events came of the limited tenant's agents, where its quota allows %d", s.talked.Load(), most)
	if s.made[proxied] != nil && s.talked.Load() == 0 || s.talked.Load() > most {
		s.TB.Errorf("%d events came of the limited tenant's agents, its quota allows %d, and none would prove nothing", s.talked.Load(), most)
	}
	if s.made[openRuns] != nil && s.compactor.Metrics(s.TB)[`skein_compactor_records_total{kind="over-quota"}`] == 0 {
		s.TB.Error("no run was ended, though the limited tenant had more than its quota open")
	}
}

// The attacks that isSlowedDown looks for.
const (
	openRuns = "quotas: runs that begin and never end"
	proxied  = "quotas: proxied runs of an agent that never stops × 20"
)

// attackUntil attacks until ctx ends, with one attack after the other.
func (s *soak) attackUntil(ctx context.Context, all map[string]soakAttack, random *rand.Rand) {
	only := regexp.MustCompile(*soakOnly)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !only.MatchString(name) })
	for n := 0; ctx.Err() == nil; n++ {
		name := names[random.IntN(len(names))]
		limited, cancel := context.WithTimeout(ctx, time.Duration(3+random.IntN(12))*time.Second)
		s.mu.Lock()
		if s.made[name] == nil {
			s.made[name] = &made{got: &answers{by: map[string]int{}, hints: map[int]string{}}}
		}
		s.made[name].times++
		got := s.made[name].got
		s.mu.Unlock()
		all[name].run(limited, random, got)
		cancel()
		s.note(name)
	}
}

// note logs what the stages hold behind an attack where that is more than half of their limits.
func (s *soak) note(attack string) {
	for _, stage := range s.stages() {
		if now, err := stage.Memory(); err == nil && now > stage.Limit/2 { // else it has ended, which the test sees
			s.TB.Logf("%s has %d of %d MiB resident behind %q", stage.Name, now>>20, stage.Limit>>20, attack)
		}
	}
}

// all are the attacks by name.
func (s *soak) all() map[string]soakAttack {
	out := map[string]soakAttack{}
	for _, a := range ingestAttacks {
		if a.long {
			continue
		}
		attack := soakAttack{run: func(ctx context.Context, _ *rand.Rand, got *answers) {
			f := &force{site: s.Site, who: cmp.Or(a.who, Hostile), url: s.ingest.URL, web: s.web, answers: map[string]int{}}
			if err := a.run(ctx, f); err != nil {
				s.TB.Errorf("%s: %v", a.name, err)
			}
			for what, n := range f.answers {
				got.add(what, n)
			}
		}}
		if a.who == Limited { // of the others, the time may be over before what they want is there
			attack.want = a.want
		}
		out["ingest: "+a.name] = attack
	}
	for name, paths := range map[string][]string{
		"history and lineage of a long thread × 40":         {"/v1/threads/long/history", "/v1/threads/long/lineage"},
		"verify of 20,000 messages × 40":                    {"/v1/threads/many/runs/many/verify", "/v1/verify"},
		"states at events × 40":                             {"/v1/threads/many/runs/many/state?at=7000", "/v1/threads/many/runs/many/changes?message=7000"},
		"waiters for the index × 40":                        {"/v1/threads/long?atLeast=0:1099511627776"},
		"replays at any pace × 40":                          {"/v1/threads/many/events", "/v1/threads/many/events?pace=0.001", "/v1/threads/many/events?pace=1e-300"},
		"streams of a run that goes on × 40":                {"/v1/threads/going/stream", "/v1/threads/going/runs/going/stream"},
		"searches, statistics, dead letters and lists × 40": {"/v1/runs?words=a", "/v1/statistics", "/v1/interrupts", "/v1/dead-letters", "/v1/threads"},
	} {
		out["query: "+name] = soakAttack{run: func(ctx context.Context, _ *rand.Rand, got *answers) { s.read(ctx, Hostile, 40, paths, got) }}
	}
	connect := fmt.Sprintf(`{"threadId":"going","runId":"x","messages":[],"tools":[],"context":[],"forwardedProps":{"x":%q}}`, strings.Repeat("x", 15<<20))
	out["query: connect with 15 MiB × 20"] = soakAttack{run: func(ctx context.Context, _ *rand.Rand, got *answers) {
		atOnce(20, func(int) {
			for ctx.Err() == nil {
				s.ask(ctx, Hostile, http.MethodPost, s.query.URL+"/v1/connect", connect, got)
			}
		})
	}}
	runs := 0 // of the producers, so that each attack has runs of its own
	fresh := func(who string, n int) (ids []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		runs++
		return threadsOn(who, fmt.Sprint("attack-", runs, "-"), n, hostilePartitions...)
	}
	publishing := func(name string, attack func(ctx context.Context, random *rand.Rand)) {
		out[name] = soakAttack{run: func(ctx context.Context, random *rand.Rand, _ *answers) { attack(ctx, random) }}
	}
	delta := []byte(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"` + strings.Repeat("x", 14<<20) + `"}`)
	publishing("compactor: unfinished runs of 2 × 14 MiB", func(ctx context.Context, _ *rand.Rand) {
		for _, run := range fresh(Hostile, 12) {
			s.publish(ctx, s.runOf(Hostile, run, run)[:1])
			for range 2 {
				s.publish(ctx, []*kgo.Record{s.event(record.KindEvent, Hostile, run, run, delta)})
			}
		}
	})
	list := strings.Repeat(`"x",`, 10_000-1) + `"x"`
	publishing("compactor: inputs of 10,000 messages", func(ctx context.Context, _ *rand.Rand) {
		for _, run := range fresh(Hostile, 40) {
			s.publish(ctx, append([]*kgo.Record{s.event(record.KindInput, Hostile, run, run, fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[]}`, run, run, list))}, s.runOf(Hostile, run, run)...))
		}
	})
	neverEnding := func(who string) func(ctx context.Context, random *rand.Rand) {
		return func(ctx context.Context, _ *rand.Rand) {
			var records []*kgo.Record
			for _, run := range fresh(who, 5_000) {
				records = append(records, s.runOf(who, run, run)[0])
			}
			s.publish(ctx, records)
		}
	}
	publishing("compactor: runs that begin and never end", neverEnding(Hostile))
	publishing(openRuns, neverEnding(Limited))
	publishing("compactor: bad data", func(ctx context.Context, random *rand.Rand) {
		var records []*kgo.Record
		for _, run := range fresh(Hostile, 500) {
			for _, kind := range []record.Kind{record.KindEvent, record.KindInput, record.KindErase, record.KindCancel, "no-kind"} {
				bad := make([]byte, random.IntN(200))
				for i := range bad {
					bad[i] = byte(random.UintN(256))
				}
				records = append(records, s.event(kind, Hostile, run, run, bad))
			}
		}
		s.publish(ctx, records)
	})
	publishing("indexer: runs of two events", func(ctx context.Context, _ *rand.Rand) {
		var records []*kgo.Record
		for _, run := range fresh(Hostile, 3_000) {
			records = append(records, s.runOf(Hostile, run, run)...)
		}
		s.publish(ctx, records)
	})
	out["quotas: reads × 40"] = soakAttack{want: "429 concurrent_reads", run: func(ctx context.Context, _ *rand.Rand, got *answers) {
		s.read(ctx, Limited, 40, []string{"/v1/threads", "/v1/runs", "/v1/statistics"}, got)
	}}
	input := func(run, state string) string {
		return fmt.Sprintf(`{"threadId":%q,"runId":%q,"messages":[],"tools":[],"context":[],"state":%q}`, run, run, state)
	}
	large := strings.Repeat("x", 3<<19)
	out["quotas: inputs of 1.5 MiB × 4"] = soakAttack{want: "429 bytes_per_second", run: func(ctx context.Context, _ *rand.Rand, got *answers) {
		atOnce(4, func(int) {
			for _, run := range fresh(Limited, 1_000) {
				if ctx.Err() == nil {
					s.ask(ctx, Limited, http.MethodPut, s.ingest.URL+"/v1/threads/"+run+"/runs/"+run+"/input", input(run, large), got)
				}
			}
		})
	}}
	out[proxied] = soakAttack{want: "429 concurrent_streams", run: func(ctx context.Context, _ *rand.Rand, got *answers) {
		atOnce(20, func(int) {
			for _, run := range fresh(Limited, 1_000) {
				if ctx.Err() == nil {
					s.ask(ctx, Limited, http.MethodPost, s.ingest.URL+"/v1/agents/talks", input(run, ""), got)
				}
			}
		})
	}}
	return out
}

// read has so many callers of a tenant ask for paths until ctx ends.
func (s *soak) read(ctx context.Context, who string, callers int, paths []string, got *answers) {
	atOnce(callers, func(i int) {
		for n := i; ctx.Err() == nil; n++ {
			s.ask(ctx, who, http.MethodGet, s.query.URL+paths[n%len(paths)], "", got)
		}
	})
}

// ask makes a request of an attacker and reads its answer, or as much of it as comes before ctx ends.
func (s *soak) ask(ctx context.Context, who, method, url, body string, got *answers) {
	req := s.Request(ctx, who, method, url, body)
	if strings.Contains(url, "/v1/agents/") {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.web.Do(req)
	if err != nil {
		return // ctx has ended, or the stage, which the test sees
	}
	defer func() { _ = resp.Body.Close() }() // only read
	what := fmt.Sprint(resp.StatusCode)
	switch {
	case resp.StatusCode < 400:
		lines := bufio.NewReader(resp.Body)
		for err == nil { // it may be broken off
			var line []byte
			if line, err = lines.ReadSlice('\n'); who == Limited && bytes.HasPrefix(line, []byte("data: ")) {
				s.talked.Add(1)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
		}
	default:
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return // as above
		}
		if _, limit := refusal(s.TB, resp, text); limit != "" {
			what += " " + limit
		}
		if slices.Contains([]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, resp.StatusCode) {
			s.TB.Errorf("%s %s is answered %d: it attacks nothing", method, url, resp.StatusCode)
		}
	}
	got.note(what, int64(len(body)))
}

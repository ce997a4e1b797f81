package abuse

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/process"
)

var (
	soakFor  = flag.Duration("abuse.soak", 0, "how long TestSoak attacks all stages at random; 0 skips it")
	soakOnly = flag.String("abuse.only", "", "a regular expression: TestSoak makes the attacks only whose names match")
	soakSeed = flag.Uint64("abuse.seed", 0, "the random choices of TestSoak; 0 chooses one and logs it")
)

// soak is all stages beside each other, an honest tenant that publishes and reads all the time, and attackers.
type soak struct {
	*pipeline
	ingest *Stage
	web    *http.Client

	mu        sync.Mutex
	published []string // the honest tenant's runs, as thread/run, each acknowledged whole
	attacks   map[string]int
}

// All attacks at random, two at a time, beside an honest tenant whose records are complete at the end. No stage ends, exceeds its limit of memory,
// or, within half an hour and more, holds more in the last third of the time than in the first.
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
	s := &soak{pipeline: compacting(t), attacks: map[string]int{}}
	var args []string
	for _, a := range ingestAttacks {
		if a.args != nil && !a.alone {
			args = append(args, a.args(t)...)
		}
	}
	s.ingest, s.web = s.Start("ingest", args...), s.Web()
	s.prepare()

	end := time.Now().Add(*soakFor)
	ctx, stop := context.WithDeadline(t.Context(), end)
	defer stop()
	memory := s.sample(ctx)
	honest := MeasureBeside(t, 4, 100*time.Millisecond, s.honest)
	var attackers sync.WaitGroup
	for i := range 2 {
		attackers.Go(func() { s.attackUntil(ctx, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	<-ctx.Done()
	attackers.Wait()
	honest.Await(t, 20)
	during := honest.Take(t)
	honest.Stop()
	s.await()
	s.complete()

	for _, name := range slices.Sorted(maps.Keys(s.attacks)) {
		t.Logf("%d × %s", s.attacks[name], name)
	}
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
	s.await()
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
	status, text, err := s.do(ctx, http.MethodPost, s.ingest.URL+path+"/events", body)
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("publishing is answered %d %s (%w)", status, text, err)
	}
	s.mu.Lock()
	s.published = append(s.published, thread+"/"+run)
	s.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
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

// do makes a request of the honest tenant.
func (s *soak) do(ctx context.Context, method, url, body string) (int, string, error) {
	resp, err := s.web.Do(s.Request(ctx, Honest, method, url, body))
	if err != nil {
		return 0, "", fmt.Errorf("asking: %w", err)
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

// attackUntil attacks until ctx ends, with one attack after the other.
func (s *soak) attackUntil(ctx context.Context, random *rand.Rand) {
	all := s.all()
	only := regexp.MustCompile(*soakOnly)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !only.MatchString(name) })
	for n := 0; ctx.Err() == nil; n++ {
		name := names[random.IntN(len(names))]
		limited, cancel := context.WithTimeout(ctx, time.Duration(3+random.IntN(12))*time.Second)
		all[name](limited, random)
		cancel()
		s.mu.Lock()
		s.attacks[name]++
		s.mu.Unlock()
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

// all are the attacks by name. Each ends with its context, or before.
func (s *soak) all() map[string]func(ctx context.Context, random *rand.Rand) {
	out := map[string]func(ctx context.Context, random *rand.Rand){}
	for _, a := range ingestAttacks {
		if !a.alone && !a.long {
			out["ingest: "+a.name] = func(ctx context.Context, _ *rand.Rand) {
				f := &force{site: s.Site, url: s.ingest.URL, web: s.web, answers: map[string]int{}}
				if err := a.run(ctx, f); err != nil {
					s.TB.Errorf("%s: %v", a.name, err)
				}
			}
		}
	}
	for name, paths := range map[string][]string{
		"history and lineage of a long thread × 40":         {"/v1/threads/long/history", "/v1/threads/long/lineage"},
		"verify of 20,000 messages × 40":                    {"/v1/threads/many/runs/many/verify", "/v1/verify"},
		"states at events × 40":                             {"/v1/threads/many/runs/many/state?at=7000", "/v1/threads/many/runs/many/changes?message=7000"},
		"waiters for the index × 40":                        {"/v1/threads/long?atLeast=0:1099511627776"},
		"replays at any pace × 40":                          {"/v1/threads/many/events", "/v1/threads/many/events?pace=0.001", "/v1/threads/many/events?pace=1e-300"},
		"streams of a run that goes on × 40":                {"/v1/threads/going/stream", "/v1/threads/going/runs/going/stream"},
		"searches, statistics, dead letters and lists × 40": {"/v1/search?q=a", "/v1/stats", "/v1/dead-letters", "/v1/threads"},
	} {
		out["query: "+name] = func(ctx context.Context, _ *rand.Rand) { s.read(ctx, 40, paths) }
	}
	connect := fmt.Sprintf(`{"threadId":"going","runId":"x","messages":[],"tools":[],"context":[],"forwardedProps":{"x":%q}}`, strings.Repeat("x", 15<<20))
	out["query: connect with 15 MiB × 20"] = func(ctx context.Context, _ *rand.Rand) {
		f := &force{site: s.Site, url: s.query.URL, web: s.web, answers: map[string]int{}}
		atOnce(20, func(i int) {
			for ctx.Err() == nil {
				f.send(ctx, http.MethodPost, "/v1/connect", strings.NewReader(connect))
			}
		})
	}
	runs := 0 // of the producers, so that each attack has runs of its own
	fresh := func(n int) (ids []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		runs++
		return threadsOn(Hostile, fmt.Sprint("attack-", runs, "-"), n, hostilePartitions...)
	}
	delta := []byte(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"` + strings.Repeat("x", 14<<20) + `"}`)
	out["compactor: unfinished runs of 2 × 14 MiB"] = func(ctx context.Context, _ *rand.Rand) {
		for _, run := range fresh(12) {
			s.publish(ctx, s.runOf(Hostile, run, run)[:1])
			for range 2 {
				s.publish(ctx, []*kgo.Record{s.event(record.KindEvent, Hostile, run, run, delta)})
			}
		}
	}
	list := strings.Repeat(`"x",`, 10_000-1) + `"x"`
	out["compactor: inputs of 10,000 messages"] = func(ctx context.Context, _ *rand.Rand) {
		for _, run := range fresh(40) {
			s.publish(ctx, append([]*kgo.Record{s.event(record.KindInput, Hostile, run, run, fmt.Appendf(nil, `{"threadId":%q,"runId":%q,"messages":[%s],"tools":[],"context":[]}`, run, run, list))}, s.runOf(Hostile, run, run)...))
		}
	}
	out["compactor: runs that begin and never end"] = func(ctx context.Context, _ *rand.Rand) {
		var records []*kgo.Record
		for _, run := range fresh(5_000) {
			records = append(records, s.runOf(Hostile, run, run)[0])
		}
		s.publish(ctx, records)
	}
	out["compactor: bad data"] = func(ctx context.Context, random *rand.Rand) {
		var records []*kgo.Record
		for _, run := range fresh(500) {
			for _, kind := range []record.Kind{record.KindEvent, record.KindInput, record.KindErase, record.KindCancel, "no-kind"} {
				bad := make([]byte, random.IntN(200))
				for i := range bad {
					bad[i] = byte(random.UintN(256))
				}
				records = append(records, s.event(kind, Hostile, run, run, bad))
			}
		}
		s.publish(ctx, records)
	}
	out["indexer: runs of two events"] = func(ctx context.Context, _ *rand.Rand) {
		var records []*kgo.Record
		for _, run := range fresh(3_000) {
			records = append(records, s.runOf(Hostile, run, run)...)
		}
		s.publish(ctx, records)
	}
	return out
}

// read has so many callers of the hostile tenant ask for paths until ctx ends.
func (s *soak) read(ctx context.Context, callers int, paths []string) {
	atOnce(callers, func(i int) {
		for n := i; ctx.Err() == nil; n++ {
			resp, err := s.web.Do(s.Request(ctx, Hostile, http.MethodGet, s.query.URL+paths[n%len(paths)], nil))
			if err != nil {
				continue // ctx has ended, or the stage, which the test sees
			}
			_, _ = io.Copy(io.Discard, resp.Body) // it may be broken off
			_ = resp.Body.Close()                 // as above
		}
	})
}

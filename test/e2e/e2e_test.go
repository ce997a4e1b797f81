package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/conformance"
	"github.com/skeinhq/skein/test/process"
)

var seed = flag.Uint64("seed", 0, "the order of publishing; 0 draws one")

// Every recorded run goes in through the HTTP API, and comes out of the HTTP API as the official client
// holds it: each run once, nothing in the dead letters. On the way the compactor is killed while it has
// open runs, and the indexer while it holds rows that the store has not acknowledged; and a node of the real
// Kafka, for good, that leads the partition of the next request: ingest says what was not acknowledged, and
// what was is there. Another tenant publishes threads and runs of the same ids meanwhile, and each sees its own only.
func TestPipeline_GivesBackWhatTheOfficialClientHolds(t *testing.T) {
	e := realEnds(t)
	t.Logf("ends: %s", e.versions)
	readsNearby(t, e.kafka)
	began := time.Now()
	elapsed := func() time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("go on with this order: -seed %d", s)
	rng := rand.New(rand.NewPCG(s, 0))

	p := startPipeline(t, e)
	t.Logf("%v: the stages are ready", elapsed())
	stories := append(recorded(t), namesakes(t)...)
	rng.Shuffle(len(stories), func(i, j int) { stories[i], stories[j] = stories[j], stories[i] })
	total := 0
	for _, s := range stories {
		for _, run := range s.thread.Runs {
			total += len(run.Lines())
		}
	}
	pub := &publisher{ingestAPI: p.ingestAPI, rng: rng}
	killed := false
	compactor := killer{t: t, after: total/4 + rng.IntN(total/4), find: openRuns(t, p)}
	indexer := killer{t: t, after: total/4 + rng.IntN(total/4), find: heldRows(t, p)}
	pub.before = func(key string) {
		if compactor.kill(pub, p.compactor) {
			p.startCompactor()
		}
		if indexer.kill(pub, p.indexer) {
			restarted := time.Now()
			p.startIndexer()
			p.indexer.AwaitReady()
			// A static member has its partitions at once; any other waits until the dead one's session has timed out, after 10 s.
			took := time.Since(restarted)
			if n := p.indexer.Metrics(t)["skein_indexer_partitions"]; n != partitions {
				t.Errorf("the indexer that was started again has %v partitions of %d", n, partitions)
			}
			t.Logf("the indexer that was started again had its partitions after %v", took)
			if took > 8*time.Second {
				t.Errorf("the indexer that was started again had its partitions after %v", took)
			}
		}
		if !killed && pub.sent > 2*total/3 {
			partition := record.Partition([]byte(key), partitions)
			e.killLeader(partition)
			killed = true
			t.Logf("%v: killed the node that leads partition %d, with %d runs begun and not ended", elapsed(), partition, pub.open)
		}
	}
	if err := pub.publish(t.Context(), stories); err != nil {
		t.Fatal(err)
	}
	if !compactor.done || !indexer.done {
		t.Fatalf("killed the compactor: %v, the indexer: %v; neither was seen at work otherwise", compactor.done, indexer.done)
	}
	if pub.refused == 0 {
		t.Errorf("ingest has refused nobody: a node was killed: %v", killed)
	}
	t.Logf("%v: %d events of %d threads are published; %d requests were told to come again", elapsed(), pub.sent, len(stories), pub.refused)

	for _, s := range stories {
		checkStory(t, p, pub, s)
	}
	checkLists(t, p, stories)
	t.Logf("%v: every run's history was read", elapsed())
	checkTopics(t, e.kafka, stories)
	p.topics("check", "--partitions", strconv.Itoa(partitions), "--replication", strconv.Itoa(e.replication))
	t.Logf("%v: topics were checked", elapsed())
	checkErasure(t, p, pub, stories)
	t.Logf("%v: a thread was erased, and published again", elapsed())
	p.stop()
}

// checkStory compares every run's history with what it has to be, and the thread's runs with those that
// its tenant has published.
func checkStory(t *testing.T, p *pipeline, pub *publisher, s story) {
	t.Helper()
	var ids []string
	for i, run := range s.thread.Runs {
		ids = append(ids, run.RunID)
		body := p.read(s.tenant, client.RunPath(run.ThreadID, run.RunID)+"/history", pub.last[runKey{s.tenant, run.ThreadID, run.RunID}])
		var got conformance.Conversation
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		got, err := conformance.Mask(s.thread, got)
		if err != nil {
			t.Fatal(err)
		}
		if d := conformance.Diff(s.want[i], got); d != "" {
			t.Errorf("%s of %s: %s", run.File, s.tenant, d)
		}
	}
	var lineage struct {
		Runs []struct {
			RunID string `json:"runId"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(p.read(s.tenant, client.ThreadPath(s.thread.ThreadID)+"/lineage", ""), &lineage); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, run := range lineage.Runs {
		got = append(got, run.RunID)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		t.Errorf("%s of %s: its runs are %q, want %q", s.thread, s.tenant, got, ids)
	}
}

// checkErasure erases one tenant's thread, of which another tenant has a namesake, and publishes it again.
func checkErasure(t *testing.T, p *pipeline, pub *publisher, stories []story) {
	t.Helper()
	i := slices.IndexFunc(stories, func(s story) bool { return s.tenant == tenantB })
	theirs := stories[i]
	id := theirs.thread.ThreadID
	own := stories[slices.IndexFunc(stories, func(s story) bool { return s.tenant == tenantA && s.thread.ThreadID == id })]
	var paths []string
	for _, call := range []string{"", "/lineage", "/history", "/diff", "/export", "/checkout", "/events"} {
		paths = append(paths, client.ThreadPath(id)+call)
	}
	for _, run := range own.thread.Runs {
		for _, call := range []string{"", "/history", "/checkout", "/events", "/verify", "/export"} {
			paths = append(paths, client.RunPath(id, run.RunID)+call)
		}
	}
	for _, path := range paths {
		if _, err := p.api[tenantA].Get(t.Context(), path, nil); client.IsNotFound(err) {
			t.Fatalf("%s is not there: its erasure would show nothing", path)
		}
	}

	receipt, err := p.ingestAPI[tenantA].EraseThread(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	body := process.Eventually(t, "the erasure is done", func() ([]byte, bool) {
		body, err := p.api[tenantA].Get(t.Context(), receipt.Href, url.Values{"wait": {"true"}})
		if err != nil {
			return []byte(err.Error()), false
		}
		return body, bytes.Contains(body, []byte(`"state":"done"`))
	})
	for _, name := range []string{"erasedAt", "localPurgedBy", "compactedBy", "rawGoneBy"} {
		if !bytes.Contains(body, []byte(`"`+name+`"`)) {
			t.Errorf("the erasure is told without %s, as %s", name, body)
		}
	}
	for _, path := range paths {
		if body, err := p.api[tenantA].Get(t.Context(), path, nil); !client.IsNotFound(err) {
			t.Errorf("%s of an erased thread is answered with %v %s", path, err, body)
		}
	}
	if _, err := p.api[tenantB].Get(t.Context(), receipt.Href, nil); !client.IsNotFound(err) {
		t.Errorf("%s gets %s's receipt: %v", tenantB, tenantA, err)
	}
	left := map[string]bool{}
	key, err := record.ThreadKey(tenantA, id)
	if err != nil {
		t.Fatal(err)
	}
	topics := p.ends.kafka.Topics()
	for _, topic := range []string{topics.Runs, topics.Snapshots} {
		for _, r := range kafkatest.Consume(t, p.ends.kafka, topic) {
			if strings.HasPrefix(string(r.Key), key+"/") {
				left[string(r.Key)] = r.Value != nil
			}
		}
	}
	for key, there := range left {
		if there {
			t.Errorf("%s has no tombstone", key)
		}
	}
	if len(left) <= len(own.thread.Runs) {
		t.Errorf("%s has left %d keys", id, len(left))
	}

	checkStory(t, p, pub, theirs)
	pub.before = func(string) {}
	if err := pub.publish(t.Context(), []story{own}); err != nil {
		t.Fatal(err)
	}
	checkStory(t, p, pub, own)
}

// checkLists wants each tenant to see the threads that it has published, and no others, by list and by id.
func checkLists(t *testing.T, p *pipeline, stories []story) {
	t.Helper()
	own := map[string][]string{tenantA: nil, tenantB: nil}
	for _, s := range stories {
		own[s.tenant] = append(own[s.tenant], s.thread.ThreadID)
	}
	for tenant, want := range own {
		var list struct {
			Threads []struct {
				ThreadID string `json:"threadId"`
			} `json:"threads"`
		}
		if err := json.Unmarshal(p.read(tenant, "/v1/threads", ""), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, thread := range list.Threads {
			got = append(got, thread.ThreadID)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the threads of %s are %q, want %q", tenant, got, want)
		}
	}
	foreign := 0
	for _, s := range stories {
		if slices.Contains(own[tenantB], s.thread.ThreadID) {
			continue
		}
		foreign++
		run := s.thread.Runs[0]
		if _, err := p.api[tenantB].Get(t.Context(), client.RunPath(run.ThreadID, run.RunID)+"/history", nil); !client.IsNotFound(err) {
			t.Errorf("%s asks for a run of %s, and the answer is %v", tenantB, s.tenant, err)
		}
	}
	if foreign == 0 || len(own[tenantB]) == 0 {
		t.Errorf("%s has %d threads and lacks %d: nothing was shown", tenantB, len(own[tenantB]), foreign)
	}
}

// read asks the API for a tenant until its index has reached a position.
func (p *pipeline) read(tenant, path, atLeast string) []byte {
	p.t.Helper()
	q := url.Values{}
	if atLeast != "" {
		q.Set("atLeast", atLeast)
	}
	return process.Eventually(p.t, path+" at "+atLeast, func() ([]byte, bool) {
		body, err := p.api[tenant].Get(p.t.Context(), path, q)
		var behind *client.Error
		switch {
		case err == nil:
			return body, true
		case client.IsNotFound(err), errors.As(err, &behind) && behind.Status == 425:
			return []byte(err.Error()), false
		}
		p.t.Fatal(err)
		return nil, false
	})
}

// checkTopics wants each run sealed once in skein.runs, and no dead letters.
func checkTopics(t *testing.T, cfg kafka.Config, stories []story) {
	t.Helper()
	sealed := make(map[string]int)
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().Runs) {
		h, err := record.ParseHeaders(r.Headers)
		if err != nil {
			t.Fatal(err)
		}
		if h.Kind != record.KindRun {
			continue
		}
		run, err := record.DecodeRun(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if run.Status != record.StatusRunning {
			sealed[string(r.Key)]++
		}
	}
	for _, s := range stories {
		for _, run := range s.thread.Runs {
			key, err := record.RunKey(s.tenant, run.ThreadID, run.RunID)
			if err != nil {
				t.Fatal(err)
			}
			if sealed[key] != 1 {
				t.Errorf("%s of %s: %d sealed records", run.File, s.tenant, sealed[key])
			}
			delete(sealed, key)
		}
	}
	for key := range sealed {
		t.Errorf("a run that nobody published: %s", key)
	}
	for _, r := range kafkatest.Consume(t, cfg, cfg.Topics().DeadLetters) {
		t.Errorf("dead letter %s: %s", r.Key, kafkatest.Header(r, record.HeaderReason))
	}
}

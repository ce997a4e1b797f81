package compactor

import (
	"cmp"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/test/parts/partstest"
)

var (
	everyRequest = flag.Bool("faults.all", false, "put each fault at every request, not at every eleventh")
	faultSeed    = flag.Uint64("faults.seed", 0, "decides at which requests faults are put; 0 draws one")
)

// refusals are what a broker may answer instead of what it was asked for: what passes by itself, and
// what does not. REQUEST_TIMED_OUT is answered after the work was done.
var refusals = map[kmsg.Key][]*kerr.Error{
	kmsg.Produce:         {kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.InvalidProducerEpoch, kerr.TopicAuthorizationFailed},
	kmsg.Fetch:           {kerr.NotLeaderForPartition, kerr.UnknownServerError, kerr.TopicAuthorizationFailed},
	kmsg.ListOffsets:     {kerr.NotLeaderForPartition, kerr.UnknownServerError},
	kmsg.Metadata:        {kerr.LeaderNotAvailable, kerr.UnknownServerError},
	kmsg.FindCoordinator: {kerr.CoordinatorNotAvailable, kerr.UnknownServerError},
	kmsg.JoinGroup:       {kerr.CoordinatorLoadInProgress, kerr.UnknownMemberID, kerr.FencedInstanceID},
	kmsg.SyncGroup:       {kerr.RebalanceInProgress, kerr.UnknownMemberID, kerr.UnknownServerError},
	kmsg.Heartbeat:       {kerr.RebalanceInProgress, kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID},
	kmsg.OffsetFetch:     {kerr.UnstableOffsetCommit, kerr.NotCoordinator, kerr.UnknownServerError},
	kmsg.InitProducerID:  {kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.UnknownServerError},
	kmsg.TxnOffsetCommit: {kerr.RequestTimedOut, kerr.CoordinatorLoadInProgress, kerr.IllegalGeneration, kerr.FencedInstanceID,
		kerr.UnknownServerError},
	kmsg.EndTxn: {kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.TransactionAbortable, kerr.UnknownServerError,
		kerr.ProducerFenced},
	kmsg.DescribeConfigs:    {kerr.RequestTimedOut, kerr.UnknownServerError},
	kmsg.ApiVersions:        nil,
	kmsg.AddOffsetsToTxn:    {kerr.ConcurrentTransactions, kerr.UnknownServerError},
	kmsg.AddPartitionsToTxn: {kerr.ConcurrentTransactions, kerr.UnknownServerError},
}

// fault is what meets one request.
type fault struct {
	key  kmsg.Key
	name string
	fate kafkatest.Fate
	err  *kerr.Error // the broker's answer, where the request is delivered
}

// Each request that a compactor makes over a small history with an open run meets each fault once: the
// connection breaks, before the broker has seen the request or after it has done what it was asked; the
// process dies there, and another begins on the same folder or an empty one; or the broker answers with
// an error. What comes out is what a fold without faults makes of the log.
func TestService_AFaultAtEachRequest(t *testing.T) {
	partstest.SkipShort(t, "time to put each fault")
	everyFault(t, smallHistory, nil)
}

// Brokers before KIP-890 (Kafka 4.0) are told beforehand which partitions and which group are part of a
// transaction.
func TestService_AFaultAtEachRequestToAnOlderBroker(t *testing.T) {
	partstest.SkipShort(t, "time to put each fault")
	cases := everyFault(t, smallHistory, []kmsg.Key{
		kmsg.Produce, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn, kmsg.InitProducerID,
	}, kfake.MaxVersions(kversion.V3_6_0()))
	if cases[kmsg.AddOffsetsToTxn] == 0 || cases[kmsg.AddPartitionsToTxn] == 0 {
		t.Errorf("cases are %v: the broker was not an older one", cases)
	}
}

// history has a compactor fold a history, and checks what comes out. Where it is killed, another of its name
// begins, on its folder or an empty one. It returns what was sent.
type history func(w *world, decide func(kafkatest.Request) kafkatest.Fate, sameFolder bool) map[kmsg.Key]int

// everyFault runs the history once for each request of the given kinds (nil: all that a run
// without faults makes) and each fault, and returns how many cases that were.
func everyFault(t *testing.T, h history, only []kmsg.Key, broker ...kfake.Opt) map[kmsg.Key]int {
	t.Helper()
	clean := map[kmsg.Key]int{}
	t.Run("no fault", func(t *testing.T) {
		inWorld(t, 1, func(w *world) { clean = h(w, nil, false) }, broker...)
	})
	if only != nil {
		maps.DeleteFunc(clean, func(key kmsg.Key, _ int) bool { return !slices.Contains(only, key) })
	}
	var faults []fault
	for key := range clean {
		faults = append(faults, fault{key, "cut before", kafkatest.CutBefore, nil}, fault{key, "cut after", kafkatest.CutAfter, nil},
			fault{key, "killed before", kafkatest.DownBefore, nil}, fault{key, "killed after", kafkatest.DownAfter, nil})
		for _, err := range refusals[key] {
			faults = append(faults, fault{key, err.Message, kafkatest.Deliver, err})
		}
	}

	step := 11 // every eleventh request, from a random one on for each fault; odd, as every other keeps the folder
	if *everyRequest {
		step = 1
	}
	seed := *faultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-faults.seed=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	slices.SortFunc(faults, func(a, b fault) int { return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.name, b.name)) })
	first := make([]int, len(faults))
	for i := range first {
		first[i] = rng.IntN(step)
	}
	var mu sync.Mutex
	table := map[kmsg.Key]map[string]int{}
	for key := range clean {
		table[key] = map[string]int{}
	}
	t.Run("fault", func(t *testing.T) {
		for i, f := range faults {
			t.Run(f.key.Name()+" "+f.name, func(t *testing.T) {
				t.Parallel()
				n := 0
				for at := first[i]; at < 10*clean[f.key] && f.at(t, h, at, broker); at += step {
					n++
				}
				for at := 0; n == 0 && at < clean[f.key]; at++ { // a run makes fewer requests at times
					if f.at(t, h, at, broker) {
						n++
					}
				}
				mu.Lock()
				defer mu.Unlock()
				table[f.key][f.name] = n
			})
		}
	})
	cases := map[kmsg.Key]int{}
	total := 0
	for _, key := range slices.SortedFunc(maps.Keys(table), func(a, b kmsg.Key) int { return strings.Compare(a.Name(), b.Name()) }) {
		for name, n := range table[key] {
			if n < clean[key]/(2*step) { // scheduling makes it a few more or less
				t.Errorf("%s %s: %d cases, and a run without faults makes %d requests", key.Name(), name, n, clean[key])
			}
			cases[key] += n
		}
		total += cases[key]
		t.Logf("%s: %d in a run without faults, %d cases: %v", key.Name(), clean[key], cases[key], table[key])
	}
	t.Logf("%d cases", total)
	return cases
}

// at runs the history with the fault at one request of its kind. It returns whether so many requests
// are made: how many there are is a matter of scheduling, so one goes on until there is none.
func (f fault) at(t *testing.T, h history, at int, broker []kfake.Opt) bool {
	t.Helper()
	made := make(chan struct{})
	t.Run(strconv.Itoa(at), func(t *testing.T) {
		inWorld(t, 1, func(w *world) {
			h(w, func(r kafkatest.Request) kafkatest.Fate {
				if r.Key != f.key || r.At != at {
					return kafkatest.Deliver
				}
				close(made)
				if f.err != nil {
					w.refuse(f.key, f.err)
				}
				return f.fate
			}, at%2 == 0)
		}, broker...)
	})
	select {
	case <-made:
		return !t.Failed()
	default:
		return false
	}
}

// mortal starts a compactor. Where it is killed, another of its name begins, on its folder or an empty one,
// until over is called.
func (w *world) mortal(decide func(kafkatest.Request) kafkatest.Fate, sameFolder bool) (m *member, over func()) {
	w.Helper()
	wire := w.cluster.Wire()
	wire.Decide(decide)
	m = w.joinBy(wire, "a", w.TempDir(), nil)
	done := make(chan struct{})
	waitFor(w.T, "it works, or is dead", func() bool {
		select {
		case <-m.wire.Dead():
			return true
		default:
			return m.works()
		}
	})
	var next sync.WaitGroup
	next.Go(func() {
		select {
		case <-done:
		case <-m.wire.Dead():
			m.kill()
			dir := m.cfg.Dir
			if !sameFolder {
				dir = w.TempDir()
			}
			w.join("a", dir, nil)
		}
	})
	return m, func() {
		close(done)
		next.Wait()
	}
}

// smallHistory is a history with an open run.
func smallHistory(w *world, decide func(kafkatest.Request) kafkatest.Fate, sameFolder bool) map[kmsg.Key]int {
	w.Helper()
	s := w.script
	m, over := w.mortal(decide, sameFolder)
	defer over()

	s.Turn("r1", "m1")
	s.Send("u", "open", started("open"))
	s.Send("u", "open", text("m", "one "))
	s.Send("t", "", custom("nobody's"))
	w.publish()
	w.decided()
	w.quiet()
	s.Turn("r2", "m2")
	s.Send("u", "open", "poison")
	w.publish()
	w.decided()
	s.Send("u", "", text("m", "two"))
	s.Send("u", "", finished("open"))
	s.Turn("r3", "m3")
	w.publish()
	w.decided()
	sent := m.wire.Sent()
	w.isTheFold()
	open := w.sealed()["u/open"]
	equal(w.T, "open run", string(open.Messages[0].Raw), assistantMessage("m", "one two"))
	return sent
}

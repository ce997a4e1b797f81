package compactor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// Every request that the compactor makes is cut off once, the first, the second and the third of its
// kind, while a run is open: nothing is lost and nothing doubled.
func TestService_AFaultAtEachRequest(t *testing.T) {
	cut := func(c *kafkatest.Cluster, key kmsg.Key, at int) {
		n := 0
		c.Fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.Fake.KeepControl()
			n++
			if n == at+1 {
				return nil, errors.New("cut off"), true
			}
			return nil, nil, false
		})
	}
	// The broker does what it was asked, and answers that it does not know.
	timeOut := func(c *kafkatest.Cluster, key kmsg.Key, at int) {
		n := 0
		c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.RequestTimedOut, When: func(kmsg.Request) bool {
			n++
			return n == at+1
		}})
	}
	type fault struct {
		name   string
		inject func(*kafkatest.Cluster, kmsg.Key, int)
		keys   []kmsg.Key
	}
	for _, f := range []fault{
		{"cut off", cut, []kmsg.Key{
			kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.OffsetFetch, kmsg.FindCoordinator, kmsg.JoinGroup, kmsg.SyncGroup,
			kmsg.Heartbeat, kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn,
		}},
		{"timed out", timeOut, []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn}},
	} {
		for _, key := range f.keys {
			most := 3
			if key == kmsg.InitProducerID || key == kmsg.ListOffsets {
				most = 1 // the later ones are those of the test's own clients
			}
			for at := range most {
				t.Run(fmt.Sprintf("%s %s %d", f.name, key.Name(), at), func(t *testing.T) {
					t.Parallel()
					c := kafkatest.StartCluster(t, 1)
					f.inject(c, key, at)
					survive(t, c)
				})
			}
		}
	}
}

// survive runs a small history with an open run and checks what comes out.
func survive(t *testing.T, c *kafkatest.Cluster) {
	t.Helper()
	k := c.Config
	cfg := testConfig(t.TempDir(), "a")
	s := newSim(t, nil)
	s.turn("r1", "m1")
	s.send("u", "open", started("open"))
	s.send("u", "open", text("m", "one "))
	s.send("t", "", custom("nobody's"))
	first := len(s.events)
	s.turn("r2", "m2")
	second := len(s.events)
	s.send("u", "", text("m", "two"))
	s.send("u", "", finished("open"))
	s.turn("r3", "m3")

	service, _, _ := runService(t, k, cfg)
	waitFor(t, "the partition is open", works(service))
	produce(t, k, 1, s.events[:first]...)
	waitDecided(t, k, cfg.Group, 1)
	produce(t, k, 1, s.events[first:second]...)
	waitDecided(t, k, cfg.Group, 1)
	produce(t, k, 1, s.events[second:]...)
	runs := waitSealed(t, k, 4)
	waitDecided(t, k, cfg.Group, 1)
	sealedOnce(t, kafkatest.Consume(t, k, k.Topics().Runs))
	equal(t, "open run", string(runs["u/open"].Messages[0].Raw), assistantMessage("m", "one two"))
	equal(t, "parent", runs["t/r3"].ParentRunID, "r2")
	letters := kafkatest.Consume(t, k, k.Topics().DeadLetters)
	equal(t, "dead letters", len(letters), 1)
	equal(t, "position", header(letters[0], record.HeaderPosition), "0:5")
	equal(t, "snapshots", snapshotsOf(kafkatest.Consume(t, k, k.Topics().Snapshots)), 8)
}

// snapshotsOf counts different snapshots: of one run and branch there is one of each kind.
func snapshotsOf(all []*kgo.Record) int {
	seen := map[string]bool{}
	for _, m := range all {
		id := string(m.Key) + " " + header(m, record.HeaderRunID)
		if seen[id] {
			return -1
		}
		seen[id] = true
	}
	return len(seen)
}

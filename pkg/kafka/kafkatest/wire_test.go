package kafkatest_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// wired is a client that takes a wire, and asks once.
type wired struct {
	t      *testing.T
	client *kgo.Client
	broker *kgo.Broker
}

func newWired(t *testing.T, w *kafkatest.Wire) wired {
	t.Helper()
	cl, err := kafka.NewProducer(w.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	return wired{t, cl, cl.DiscoveredBrokers()[0]}
}

// make asks for a topic, without trying again.
func (w wired) make(ctx context.Context, topic string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	one := kmsg.NewCreateTopicsRequestTopic()
	one.Topic, one.NumPartitions, one.ReplicationFactor = topic, 1, 1
	req.Topics = append(req.Topics, one)
	resp, err := w.broker.Request(ctx, req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

// exists asks the brokers on another way.
func exists(t *testing.T, c *kafkatest.Cluster, topic string) bool {
	t.Helper()
	adm, err := kafka.NewAdmin(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return topics.Has(topic)
}

func isDown(w *kafkatest.Wire) bool {
	select {
	case <-w.Dead():
		return true
	default:
		return false
	}
}

func TestWire_GivesARequestItsFate(t *testing.T) {
	for name, c := range map[string]struct {
		fate                 kafkatest.Fate
		answered, done, down bool
	}{
		"deliver":     {kafkatest.Deliver, true, true, false},
		"cut before":  {kafkatest.CutBefore, false, false, false},
		"cut after":   {kafkatest.CutAfter, false, true, false},
		"down before": {kafkatest.DownBefore, false, false, true},
		"down after":  {kafkatest.DownAfter, false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := kafkatest.StartCluster(t, 1)
			wire, other := cluster.Wire(), newWired(t, cluster.Wire())
			client := newWired(t, wire)
			var asked atomic.Int32
			wire.Decide(func(r kafkatest.Request) kafkatest.Fate {
				if r.Key != kmsg.CreateTopics {
					return kafkatest.Deliver
				}
				if n := int(asked.Add(1)); r.At != n-1 {
					t.Errorf("request %d is said to be one after %d", n, r.At)
				}
				if r.At == 0 {
					return kafkatest.Deliver
				}
				return c.fate // each time: the client asks again where it could not write
			})
			if err := client.make(t.Context(), "first"); err != nil {
				t.Fatalf("a request that is delivered: %v", err)
			}
			if err := client.make(t.Context(), "second"); (err == nil) != c.answered {
				t.Errorf("its answer is %v", err)
			}
			if n, want := wire.Sent()[kmsg.CreateTopics], int(asked.Load()); n != want || n < 2 {
				t.Errorf("%d requests are counted, %d were asked for their fate", n, want)
			}
			wire.Decide(nil)
			if c.done {
				kafkatest.Eventually(t, "the broker has done it", func() bool { return exists(t, cluster, "second") })
			} else if exists(t, cluster, "second") {
				t.Error("the broker has done it")
			}
			if isDown(wire) != c.down {
				t.Errorf("the wire is down: %v", isDown(wire))
			}
			if err := client.make(t.Context(), "third"); (err == nil) == c.down {
				t.Errorf("the next request is answered with %v", err)
			}
			if err := other.make(t.Context(), "others"); err != nil {
				t.Errorf("another process's request is answered with %v", err)
			}
		})
	}
}

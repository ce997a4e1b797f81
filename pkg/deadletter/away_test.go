package deadletter_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
)

// Kafka goes away before a retry is published, and comes back.
func TestRetry_EndsWhereKafkaGoesAway(t *testing.T) {
	for _, fate := range []kafkatest.Fate{kafkatest.CutBefore, kafkatest.Hang} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kafkatest.StartCluster(t, 1, kafkatest.Virtual())
				topics := c.Config.Topics()
				key := []byte("acme/t")
				kafkatest.Produce(t, c.Config,
					&kgo.Record{Topic: topics.Events, Key: key, Value: []byte(`{}`)},
					&kgo.Record{Topic: topics.DeadLetters, Key: key, Value: []byte(`{}`), Headers: []kgo.RecordHeader{
						{Key: record.HeaderReason, Value: []byte(deadletter.NoRun)}, {Key: record.HeaderPosition, Value: []byte("0:0")},
					}})
				w := c.Wire()
				var away atomic.Bool // connections have goroutines of their own
				w.Decide(func(r kafkatest.Request) kafkatest.Fate {
					if r.Key == kmsg.Produce {
						away.Store(true)
					}
					if away.Load() {
						return fate
					}
					return kafkatest.Deliver
				})
				retry := deadletter.Retry{Query: deadletter.Query{Tenant: "acme"}}
				start := time.Now()
				if _, err := retry.Run(t.Context(), w.Config); !errors.Is(err, kafka.ErrUnacknowledged) {
					t.Errorf("it says %v", err)
				}
				if took := time.Since(start); took > 90*time.Second {
					t.Errorf("it took %v", took)
				}
				w.Decide(nil)
				done, err := retry.Run(t.Context(), w.Config)
				if err != nil || len(done) != 1 || done[0].Outcome != deadletter.Published {
					t.Errorf("run again it says %v, %v", done, err)
				}
				if all := kafkatest.Consume(t, c.Config, topics.Events); len(all) != 2 {
					t.Errorf("%d events", len(all))
				}
			})
		})
	}
}

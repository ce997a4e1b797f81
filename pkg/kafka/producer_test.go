package kafka_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// Kafka goes away once the producer id is taken: before it has a record, when it has one and cannot say so, or
// without a word. In the end a record that was published once, and once more after the error, is there once.
func TestTransactor_GivesUpWhereKafkaGoesAway(t *testing.T) {
	for name, away := range map[string]func(kafkatest.Request) kafkatest.Fate{
		"every connection is cut": func(kafkatest.Request) kafkatest.Fate { return kafkatest.CutBefore },
		"the answer is lost, then all": func(r kafkatest.Request) kafkatest.Fate {
			if r.Key == kmsg.Produce && r.At == 0 {
				return kafkatest.CutAfter
			}
			return kafkatest.CutBefore
		},
		"no answer": func(r kafkatest.Request) kafkatest.Fate {
			if r.Key == kmsg.Produce {
				return kafkatest.Hang
			}
			return kafkatest.Deliver
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := kafkatest.StartCluster(t, 1, kafkatest.Virtual())
				w := c.Wire()
				events := c.Config.Topics().Events
				publish := func(decide func(kafkatest.Request) kafkatest.Fate) error {
					cl, err := kafka.NewTransactor(t.Context(), w.Config, "somebody")
					if err != nil {
						t.Fatal(err)
					}
					defer cl.Close()
					if err := cl.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
					w.Decide(decide)
					defer w.Decide(nil)
					if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: events, Value: []byte("x")}).FirstErr(); err != nil {
						return kafka.Unacknowledged(err)
					}
					return cl.EndTransaction(t.Context(), kgo.TryCommit)
				}
				start := time.Now()
				if err := publish(away); !errors.Is(err, kafka.ErrUnacknowledged) {
					t.Errorf("it says %v", err)
				}
				if took := time.Since(start); took < 30*time.Second || took > 45*time.Second {
					t.Errorf("it took %v", took)
				}
				if err := publish(nil); err != nil {
					t.Errorf("once Kafka is there again it says %v", err)
				}
				if all := kafkatest.Consume(t, c.Config, events); len(all) != 1 {
					t.Errorf("%d records", len(all))
				}
			})
		})
	}
}

// kgo gives out a topic's first records before it knows the topic itself: a transaction that ends in between was
// aborted without a word. It is a matter of microseconds, so there are many, and -race shows it best.
func TestTransactor_CommitsTheFirstRecordsOfATopic(t *testing.T) {
	const times = 1000
	synctest.Test(t, func(t *testing.T) {
		c := kafkatest.StartCluster(t, 1, kafkatest.Virtual())
		events := c.Config.Topics().Events
		for range times {
			cl, err := kafka.NewTransactor(t.Context(), c.Config, "somebody")
			if err != nil {
				t.Fatal(err)
			}
			err = cl.BeginTransaction()
			if err == nil {
				err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: events, Value: []byte("x")}).FirstErr()
			}
			if err == nil {
				err = cl.EndTransaction(t.Context(), kgo.TryCommit)
			}
			cl.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		if all := kafkatest.Consume(t, c.Config, events); len(all) != times {
			t.Errorf("%d of %d transactions were committed", len(all), times)
		}
	})
}

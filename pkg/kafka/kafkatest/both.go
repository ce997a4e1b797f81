package kafkatest

import (
	"testing"

	"github.com/skeinhq/skein/pkg/kafka"
)

// OnBoth runs a test twice: on kfake, and on the process's shared real Kafka with one node. Each cluster has the four
// topics, or none if partitions is 0. With -short, the test runs only on kfake.
func OnBoth(t *testing.T, partitions int32, test func(*testing.T, kafka.Config)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) {
		if partitions == 0 {
			test(t, Start(t, 0, WithoutTopics()))
			return
		}
		test(t, Start(t, partitions))
	})
	t.Run("real Kafka", func(t *testing.T) {
		c := Real(t, 1)
		if partitions > 0 {
			c.MakeTopics(partitions)
		}
		test(t, c.Config)
	})
}

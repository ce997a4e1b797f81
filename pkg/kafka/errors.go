package kafka

import "errors"

// ErrNoTopic says that a topic of the set does not exist. EnsureTopics makes it.
var ErrNoTopic = errors.New("topic does not exist")

// ErrPartitionCounts says that the topics of the set do not have one partition count. Positions and
// the partitions of threads belong to a count, so it can only be changed by copying into a new set.
var ErrPartitionCounts = errors.New("partition counts differ")

package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrNoTopic means that topics of the set do not exist. EnsureTopics makes them.
var ErrNoTopic = errors.New("there is no topic of that name")

// ErrNoPartition means that a topic has no such partition.
var ErrNoPartition = errors.New("there is no such partition")

// ErrPartitionCounts means that the topics of a set have different partition counts, or that the count has changed. Positions and
// the partitions of threads depend on the count. To change it, copy the records into a new set.
var ErrPartitionCounts = errors.New("partition counts differ")

// ErrOtherTopics means that topics were deleted and created again. A client's positions belong to the old topics.
var ErrOtherTopics = errors.New("topics were deleted and made again")

// ErrDenied means that the brokers refuse the user, the password or the SASL mechanism, or that the user lacks a permission.
var ErrDenied = errors.New("Kafka refuses the credentials") //nolint:staticcheck // a name

// ErrUntrusted means that the broker's certificate is not from a trusted authority, is for another name, or is not valid now.
var ErrUntrusted = errors.New("the broker's certificate is not trusted")

// explain wraps errors of authentication and authorization with ErrDenied.
func explain(err error) error {
	if errors.Is(err, kerr.IllegalSaslState) {
		return fmt.Errorf("%w: this listener asks for no login: name the port of one that does, or set no mechanism (%w)", ErrDenied, err)
	}
	for _, denied := range []error{
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	return err
}

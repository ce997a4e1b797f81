package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrNoTopic says that topics of the set do not exist. EnsureTopics makes them.
var ErrNoTopic = errors.New("there is no topic of that name")

// ErrPartitionCounts says that the topics of the set do not have one partition count. Positions and
// the partitions of threads belong to a count, so it can only be changed by copying into a new set.
var ErrPartitionCounts = errors.New("partition counts differ")

// ErrOtherTopics says that topics of the set were deleted and made again. What a client holds of them,
// it holds of a log that is gone.
var ErrOtherTopics = errors.New("topics were deleted and made again")

// ErrDenied says that the brokers do not take the user, the password or the mechanism, or that the user
// may not do what was asked for.
var ErrDenied = errors.New("Kafka refuses the credentials") //nolint:staticcheck // a name

// ErrUntrusted says that nobody whom we trust vouches for the broker: the authority is another one, or
// the certificate is for another name or time.
var ErrUntrusted = errors.New("the broker's certificate is not trusted")

// explain adds what an error means. The broker's own text stays.
func explain(err error) error {
	for _, denied := range []error{
		kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState,
		kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	} {
		if errors.Is(err, denied) {
			return fmt.Errorf("%w: %w", ErrDenied, err)
		}
	}
	return err
}

package kafka

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// MaxValueBytes is the size limit of events, inputs and run records: 16 MiB.
	MaxValueBytes = 16 << 20
	// MaxBatchBytes is the size limit of a record batch, on the topics and before compression. It fits a value of MaxValueBytes, its
	// key (up to 4.5 KiB: three escaped ids of 512 bytes), headers, also of a dead letter, and the batch's frame.
	MaxBatchBytes = MaxValueBytes + 64<<10
)

// Config names a cluster and a topic set.
type Config struct {
	// Brokers are HOST:PORT addresses of some of the brokers.
	Brokers []string
	// TopicPrefix is the start of each topic's name ("acme." gives acme.skein.events).
	TopicPrefix string
	// Rack is where this process runs. Readers fetch from a replica in the same rack (KIP-392), if the brokers have
	// replica.selector.class. Empty: from the leaders.
	Rack string
	// Security protects the connections.
	Security Security
	// ClientID identifies this process at the brokers (quotas, request logs). Each constructor appends the client's role.
	ClientID string
	// IngestKeys sign what ingest writes to skein.events, and refuse other records there; nil: every producer may write.
	IngestKeys *IngestKeys
	// Logger gets the client's log lines; nil: none.
	Logger *slog.Logger
	// Registerer gets the clients' metrics, labelled with the client id; nil: none. Two clients from the same constructor need
	// different Registerers or ClientIDs.
	Registerer prometheus.Registerer
	// Options returns options that override those of the constructor; nil: none. Tests use it for a network with faults. It must
	// return new options for each client, because kgo changes the values of some options.
	Options func() []kgo.Opt
}

// Topics are the names of one topic set.
type Topics struct {
	Events      string
	Runs        string
	Snapshots   string
	DeadLetters string
}

// Topics returns the names of the configured topic set.
func (c Config) Topics() Topics {
	return Topics{
		Events:      c.TopicPrefix + "skein.events",
		Runs:        c.TopicPrefix + "skein.runs",
		Snapshots:   c.TopicPrefix + "skein.snapshots",
		DeadLetters: c.TopicPrefix + "skein.dead-letters",
	}
}

// All returns the four names, events first.
func (t Topics) All() []string { return []string{t.Events, t.Runs, t.Snapshots, t.DeadLetters} }

// InTopicSet reports whether a topic with this name belongs to a topic set, with any prefix.
func InTopicSet(topic string) bool {
	return slices.ContainsFunc(Config{}.Topics().All(), func(name string) bool {
		prefix, ok := strings.CutSuffix(topic, name)
		return ok && topicPrefix.MatchString(prefix)
	})
}

var topicPrefix = regexp.MustCompile(`^[a-zA-Z0-9._-]{0,200}$`)

// CompactorGroup returns the consumer group of the topic set's compactors: all of them share it, and no others do.
func (c Config) CompactorGroup() string { return c.TopicPrefix + "skein-compactor" }

// IndexerGroup returns the consumer group of the topic set's indexers.
func (c Config) IndexerGroup() string { return c.TopicPrefix + "skein-indexer" }

// ValidatePrefix returns an error if topic names cannot begin with a prefix.
func ValidatePrefix(prefix string) error {
	if topicPrefix.MatchString(prefix) {
		return nil
	}
	return fmt.Errorf("checking topic prefix %q: topic names may have letters, digits, '.', '_' and '-' only, the prefix up to 200", prefix)
}

// Validate returns all invalid settings as one error.
func (c Config) Validate() error {
	var errs []error
	if len(c.Brokers) == 0 {
		errs = append(errs, errors.New("checking brokers: there is none: name at least one as HOST:PORT"))
	}
	for _, b := range c.Brokers {
		if strings.Contains(b, "@") { // it would be logged with every connection
			errs = append(errs, errors.New("checking brokers: an address holds user or password: say HOST:PORT only"))
		}
	}
	return errors.Join(append(errs, ValidatePrefix(c.TopicPrefix), c.Security.validate())...)
}

// more returns the Options for a new client.
func (c Config) more() []kgo.Opt {
	if c.Options == nil {
		return nil
	}
	return c.Options()
}

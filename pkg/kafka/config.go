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
	// MaxValueBytes is the limit of events, inputs and run records: 16 MiB.
	MaxValueBytes = 16 << 20
	// MaxBatchBytes is the largest record batch on the topics and from producers: one value of
	// MaxValueBytes with its key (three ids of 512 bytes, every one of them escaped, are 4.5 KiB),
	// its headers, dead-letter headers included, and the batch's frame.
	MaxBatchBytes = MaxValueBytes + 64<<10
)

// Config says which cluster and topic set to use.
type Config struct {
	// Brokers are HOST:PORT addresses to start from.
	Brokers []string
	// TopicPrefix stands before each topic's name ("acme." gives acme.skein.events).
	TopicPrefix string
	// Security protects the connections.
	Security Security
	// ClientID names this process to the brokers (quotas, request logs). Each constructor adds
	// what the client is for.
	ClientID string
	// Logger gets the client's log lines; nil: none.
	Logger *slog.Logger
	// Registerer gets the clients' metrics, labelled with the client id; nil: none. A process has at
	// most one client of each constructor on one Registerer at a time, or different ClientIDs.
	Registerer prometheus.Registerer
	// Options come after those of every constructor and win over them; nil: none. kafkatest has a
	// network of its own here, where faults happen. It is called for each client: kgo writes to what
	// some options hold.
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

// InTopicSet reports whether a topic of this name belongs to a topic set, of whatever prefix.
func InTopicSet(topic string) bool {
	return slices.ContainsFunc(Config{}.Topics().All(), func(name string) bool {
		prefix, ok := strings.CutSuffix(topic, name)
		return ok && topicPrefix.MatchString(prefix)
	})
}

var topicPrefix = regexp.MustCompile(`^[a-zA-Z0-9._-]{0,200}$`)

// CompactorGroup is the consumer group of the topic set's compactors, unless they are told another one.
func (c Config) CompactorGroup() string { return c.TopicPrefix + "skein-compactor" }

// Validate reports every setting that cannot work, all at once.
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
	if !topicPrefix.MatchString(c.TopicPrefix) {
		errs = append(errs, fmt.Errorf("checking topic prefix %q: only letters, digits, '.', '_' and '-' can stand in topic names, up to 200", c.TopicPrefix))
	}
	return errors.Join(append(errs, c.Security.validate())...)
}

// more are the Options for one client.
func (c Config) more() []kgo.Opt {
	if c.Options == nil {
		return nil
	}
	return c.Options()
}

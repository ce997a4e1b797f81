package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/pkg/kafka"
)

// KafkaFlags say where Kafka is, how it is reached and which topic set is meant.
type KafkaFlags struct {
	brokers     []string
	topicPrefix string
	security    kafka.Security
}

// Flags adds the flags.
func (k *KafkaFlags) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&k.brokers, "brokers", nil, "Kafka brokers, `HOST:PORT` separated by commas")
	f.StringVar(&k.topicPrefix, "topic-prefix", "", "prefix `TEXT` of all topic names")
	s := &k.security
	f.BoolVar(&s.TLS, "kafka-tls", false, "use TLS for connections to the brokers")
	f.StringVar(&s.CAFile, "kafka-ca-file", "", "PEM `FILE` of the CAs to trust for the brokers; by default the system's")
	f.StringVar(&s.CertFile, "kafka-cert-file", "", "PEM `FILE` with this process's client certificate, if brokers require one")
	f.StringVar(&s.KeyFile, "kafka-key-file", "", "PEM `FILE` with the certificate's private key")
	f.StringVar(&s.ServerName, "kafka-server-name", "", "`NAME` to expect in the brokers' certificates; by default the host of each address")
	f.StringVar(&s.SASL, "kafka-sasl", "", "`MECHANISM` to log in with: "+strings.Join(kafka.SASLMechanisms(), ", "))
	f.StringVar(&s.User, "kafka-user", "", "`NAME` of the user to log in as")
	f.StringVar(&s.PasswordFile, "kafka-password-file", "", "`FILE` with the user's password; read for each new connection")
}

// Config is what the flags say, for clients of that id.
func (k *KafkaFlags) Config(clientID string) (kafka.Config, error) {
	if len(k.brokers) == 0 {
		return kafka.Config{}, Usagef("no Kafka brokers: pass --brokers HOST:PORT,… (or SKEIN_BROKERS)")
	}
	cfg := kafka.Config{Brokers: k.brokers, TopicPrefix: k.topicPrefix, Security: k.security, ClientID: clientID}
	if err := cfg.Validate(); err != nil {
		return kafka.Config{}, Usagef("%w", err)
	}
	return cfg, nil
}

// Kafka is the configuration of the process's Kafka clients.
func (p *Process) Kafka() kafka.Config { return p.kafka }

// CheckKafka makes readiness ask whether a broker answers. A stage that only waits for events has no
// other way to know soon that none can come.
func (p *Process) CheckKafka(ctx context.Context) error {
	if err := p.openProbe(ctx); err != nil {
		return err
	}
	p.Admin.AddDependency("kafka", p.probe.Ping)
	return nil
}

// MentionKafka makes readiness say whether a broker answers and the topics are there, for a stage that
// answers most questions without: it starts and stays ready all the same.
func (p *Process) MentionKafka(ctx context.Context) error {
	if err := p.openProbe(ctx); err != nil {
		return err
	}
	p.Admin.AddOptional("kafka", p.probe.Ping)
	p.Admin.AddOptional("topics", p.checkTopics())
	return nil
}

func (p *Process) openProbe(ctx context.Context) error {
	probe, err := kafka.NewProbe(p.Kafka())
	if err != nil {
		return err
	}
	p.probe = probe
	p.Group.Go(ctx, "Kafka probe", func(ctx context.Context) error {
		<-ctx.Done()
		probe.Close()
		return nil
	})
	return nil
}

// checkTopics returns a check that the topic set is there, with the partition count that it had when the
// check passed for the first time. Topics that were created again pass: each stage handles that itself.
func (p *Process) checkTopics() admin.Check {
	var pinned atomic.Pointer[kafka.TopicSet]
	return func(ctx context.Context) error {
		set, err := p.probe.TopicSet(ctx)
		switch {
		case errors.Is(err, kafka.ErrNoTopic):
			return fmt.Errorf("%w: create them with: %s", err, p.topicsCommand())
		case err != nil:
			return fmt.Errorf("asking %s: %w", strings.Join(p.kafka.Brokers, ","), err)
		case pinned.CompareAndSwap(nil, &set):
			return nil
		}
		if err := set.Compare(*pinned.Load()); !errors.Is(err, kafka.ErrOtherTopics) {
			return err
		}
		return nil
	}
}

// awaitTimeout bounds one look at something that a stage waits for; awaitPause is the time between two.
const (
	awaitTimeout = 10 * time.Second
	awaitPause   = 2 * time.Second
)

// AwaitTopics returns once the topic set is there. Until then, and whenever it is not what it was then,
// readiness says what is missing and which command makes it, and so does one line of the log: a stage
// makes no topics itself, as a prefix that is spelt wrong would give it a second, empty set. Partition
// counts that differ are an error: that is nothing that time mends. CheckKafka comes before.
func (p *Process) AwaitTopics(ctx context.Context) error {
	check := p.checkTopics()
	p.Admin.AddDependency("topics", check)
	return p.Await(ctx, "topics", check, kafka.ErrPartitionCounts)
}

// WatchStalls makes readiness say, and the lag count, what lies on a stage's partitions and cannot be read:
// behind a transaction that somebody has left open, or where fetches fail. The stage stays ready: it does
// what there is to do, and a restart mends neither.
func (p *Process) WatchStalls(ctx context.Context, stage, topic, group string, lag *kafka.Lag) error {
	w, err := kafka.NewStallWatch(p.Kafka(), stage, topic, group, lag)
	if err != nil {
		return err
	}
	p.Admin.AddRemark("reading", w.Check)
	p.Group.Go(ctx, "stall watch", func(ctx context.Context) error {
		w.Run(ctx, p.Logger)
		return nil
	})
	return nil
}

// topicsCommand is the command line that makes the topics which this process waits for; how Kafka is to be
// spoken to is left out, as it is the same there.
func (p *Process) topicsCommand() string {
	command := "skein topics create --brokers " + strings.Join(p.kafka.Brokers, ",")
	if p.kafka.TopicPrefix != "" {
		command += " --topic-prefix " + p.kafka.TopicPrefix
	}
	return command
}

// Await asks until the answer is nil. While it is another, the stage does not start, and need not be
// started anew once somebody has mended what was missing: what is waited for, and each new reason, is
// one line of the log. An error that is one of final ends the wait, and so does ctx.
func (p *Process) Await(ctx context.Context, what string, ask func(context.Context) error, final ...error) error {
	said := ""
	for {
		once, cancel := context.WithTimeout(ctx, awaitTimeout)
		err := ask(once)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		for _, f := range final {
			if errors.Is(err, f) {
				return err
			}
		}
		if err.Error() != said {
			said = err.Error()
			p.Logger.Warn("waiting for what is missing", "missing", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

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
	f.StringVar(&k.topicPrefix, "topic-prefix", "", "`TEXT` in front of all topic names")
	s := &k.security
	f.BoolVar(&s.TLS, "kafka-tls", false, "speak TLS with the brokers")
	f.StringVar(&s.CAFile, "kafka-ca-file", "", "PEM `FILE` of the authorities that vouch for the brokers; the system's by default")
	f.StringVar(&s.CertFile, "kafka-cert-file", "", "PEM `FILE` of this process's own certificate, where brokers ask for one")
	f.StringVar(&s.KeyFile, "kafka-key-file", "", "PEM `FILE` of the certificate's key")
	f.StringVar(&s.ServerName, "kafka-server-name", "", "`NAME` that the brokers' certificates are for; the host of each address by default")
	f.StringVar(&s.SASL, "kafka-sasl", "", "`MECHANISM` to log in with: "+strings.Join(kafka.SASLMechanisms(), ", "))
	f.StringVar(&s.User, "kafka-user", "", "`NAME` of the user to log in as")
	f.StringVar(&s.PasswordFile, "kafka-password-file", "", "`FILE` with the user's password; it is read again for each connection")
}

// Config is what the flags say, for clients of that id.
func (k *KafkaFlags) Config(clientID string) (kafka.Config, error) {
	if len(k.brokers) == 0 {
		return kafka.Config{}, Usagef("no Kafka brokers: say --brokers HOST:PORT,… (or SKEIN_BROKERS)")
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
	probe, err := kafka.NewProbe(p.Kafka())
	if err != nil {
		return err
	}
	p.Admin.AddCheck("kafka", probe.Ping)
	p.Group.Go(ctx, "Kafka probe", func(ctx context.Context) error {
		<-ctx.Done()
		probe.Close()
		return nil
	})
	return nil
}

// awaitTimeout bounds one look at something that a stage waits for; awaitPause is the time between two.
const (
	awaitTimeout = 10 * time.Second
	awaitPause   = 2 * time.Second
)

// AwaitTopics returns once the topic set is there. Until then readiness and one line of the log say
// what is missing and which command makes it: a stage makes no topics itself, as a prefix that is spelt
// wrong would give it a second, empty set. Partition counts that differ are an error: that is nothing
// that time mends.
func (p *Process) AwaitTopics(ctx context.Context) error {
	cfg := p.Kafka()
	cfg.Registerer = nil // this client lives for the wait only
	adm, err := kafka.NewAdmin(cfg)
	if err != nil {
		return err
	}
	defer adm.Close()
	var fault atomic.Pointer[error]
	p.Admin.AddCheck("topics", func(context.Context) error {
		if err := fault.Load(); err != nil {
			return *err
		}
		return nil
	})
	return p.Await(ctx, "topics", func(ctx context.Context) error {
		_, err := kafka.PartitionCount(ctx, adm, cfg.Topics())
		switch {
		case err == nil:
			fault.Store(nil)
			return nil
		case errors.Is(err, kafka.ErrNoTopic):
			err = fmt.Errorf("%w: make them with: %s", err, p.topicsCommand())
		default:
			err = fmt.Errorf("asking %s: %w", strings.Join(p.kafka.Brokers, ","), err)
		}
		fault.Store(&err)
		return err
	}, kafka.ErrPartitionCounts)
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

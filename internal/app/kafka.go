package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/pkg/kafka"
)

// KafkaFlags are the flags of the brokers, the connection and the topic set.
type KafkaFlags struct {
	brokers     []string
	topicPrefix string
	rack        string
	security    kafka.Security
}

// Flags adds the flags.
func (k *KafkaFlags) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&k.brokers, "brokers", nil, "Kafka brokers, `HOST:PORT` separated by commas")
	f.StringVar(&k.topicPrefix, "topic-prefix", "", "prefix `TEXT` of all topic names")
	f.StringVar(&k.rack, "kafka-rack", "", "`NAME` of the rack or zone where this process runs, to read from brokers there (broker.rack)")
	s := &k.security
	f.BoolVar(&s.TLS, "kafka-tls", false, "use TLS for connections to the brokers")
	f.StringVar(&s.CAFile, "kafka-ca-file", "", "PEM `FILE` of the CAs to trust for the brokers; by default the system's")
	f.StringVar(&s.CertFile, "kafka-cert-file", "", "PEM `FILE` with this process's client certificate, if brokers require one")
	f.StringVar(&s.KeyFile, "kafka-key-file", "", "PEM `FILE` with the certificate's private key")
	f.StringVar(&s.ServerName, "kafka-server-name", "", "`NAME` to expect in the brokers' certificates; by default the host of each address")
	f.StringVar(&s.SASL, "kafka-sasl", "", "`MECHANISM` to log in with: "+strings.Join(kafka.SASLMechanisms(), ", "))
	f.StringVar(&s.User, "kafka-user", "", "`NAME` of the user to log in as; the client id for --kafka-oauth-url")
	f.StringVar(&s.PasswordFile, "kafka-password-file", "", "`FILE` with the user's password; read for each new connection")
	o := &s.OAuth
	f.StringVar(&o.TokenFile, "kafka-oauth-token-file", "", "`FILE` with the token for OAUTHBEARER; read for each new connection")
	f.StringVar(&o.URL, "kafka-oauth-url", "", "`URL` of the endpoint that gives tokens for OAUTHBEARER (client credentials)")
	f.StringVar(&o.Scope, "kafka-oauth-scope", "", "`SCOPES` to ask the token endpoint for, separated by spaces")
	f.StringVar(&o.CAFile, "kafka-oauth-ca-file", "", "PEM `FILE` of the CAs to trust for the token endpoint; by default the system's")
	f.StringVar(&o.Extensions, "kafka-oauth-extensions", "", "`PAIRS` KEY=VALUE to send the brokers with the token, separated by commas")
}

// Config returns the configuration of the flags, for clients with an id.
func (k *KafkaFlags) Config(clientID string) (kafka.Config, error) {
	if len(k.brokers) == 0 {
		return kafka.Config{}, Usagef("no Kafka brokers: pass --brokers HOST:PORT,… (or SKEIN_BROKERS)")
	}
	cfg := kafka.Config{Brokers: k.brokers, TopicPrefix: k.topicPrefix, Rack: k.rack, Security: k.security, ClientID: clientID}
	if err := cfg.Validate(); err != nil {
		return kafka.Config{}, Usagef("%w", err)
	}
	return cfg, nil
}

// RequireIngestFlag adds the flag of the file that RequireIngest takes.
func RequireIngestFlag(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "require-ingest", "", "`FILE` with the keys, one a line, by which ingest signs its records; the compactor then refuses "+
		"records of other producers, and query does not show them; reloaded when it changes; by default every producer may write")
}

// RequireIngest reads ingest's signing keys into p.Kafka, unless path is empty. The process reloads them while it runs.
func (p *Process) RequireIngest(ctx context.Context, path string) (err error) {
	if path == "" {
		return nil
	}
	if p.Kafka.IngestKeys, err = kafka.OpenIngestKeys(path, p.Logger, p.Registry); err != nil {
		return err
	}
	p.Admin.AddRemark("ingest-keys-file", func(context.Context) error { return p.Kafka.IngestKeys.Stale() })
	p.Group.Go(ctx, "ingest keys", p.Kafka.IngestKeys.Run)
	return nil
}

// MentionKafka adds optional checks of the brokers and topics to readiness, for a stage that answers most requests without Kafka.
func (p *Process) MentionKafka(ctx context.Context) error {
	if err := p.openProbe(ctx); err != nil {
		return err
	}
	p.Admin.AddOptional("kafka", p.probe.Ping)
	p.Admin.AddOptional("topics", p.checkTopics)
	return nil
}

func (p *Process) openProbe(ctx context.Context) error {
	probe, err := kafka.NewProbe(p.Kafka)
	if err != nil {
		return err
	}
	p.probe = probe
	p.Admin.AddRemark("kafka-files", func(context.Context) error { return p.Kafka.Security.CheckFiles() })
	p.Group.Closing(ctx, "Kafka probe", func() error { probe.Close(); return nil })
	return nil
}

// checkTopics checks that the topic set exists and has the same partition count as at the first success. Recreated topics pass,
// since each stage handles them itself.
func (p *Process) checkTopics(ctx context.Context) error {
	set, err := p.probe.TopicSet(ctx)
	switch {
	case errors.Is(err, kafka.ErrNoTopic): // the suggested command lacks the flags of the connection
		err = fmt.Errorf("%w: create them with: skein topics create --brokers %s", err, strings.Join(p.Kafka.Brokers, ","))
		if p.Kafka.TopicPrefix != "" {
			err = fmt.Errorf("%w --topic-prefix %s", err, p.Kafka.TopicPrefix)
		}
		return err
	case err != nil:
		return fmt.Errorf("asking %s: %w", strings.Join(p.Kafka.Brokers, ","), err)
	case p.topics.CompareAndSwap(nil, &set):
		return nil
	}
	if err := set.Compare(*p.topics.Load()); !errors.Is(err, kafka.ErrOtherTopics) {
		return err
	}
	return nil
}

// Partitions returns the partition count of the topics. Call it after AwaitKafka.
func (p *Process) Partitions() int { return int(p.topics.Load().Partitions) }

// awaitTimeout bounds one check of Await; awaitPause is the time between two.
const (
	awaitTimeout = 10 * time.Second
	awaitPause   = 2 * time.Second
)

// AwaitKafka adds checks of the brokers and topics to readiness, and waits until the topic set exists. While topics are missing,
// readiness and the log report the command that creates them. Stages create no topics: with a misspelt prefix they would create a
// second, empty set. If the topics' partition counts differ, AwaitKafka fails at once, because waiting does not help.
func (p *Process) AwaitKafka(ctx context.Context) error {
	if err := p.openProbe(ctx); err != nil {
		return err
	}
	p.Admin.AddDependency("kafka", p.probe.Ping) // a stage that waits for events would notice late that no broker answers
	p.Admin.AddDependency("topics", p.checkTopics)
	if err := p.Await(ctx, "kafka", p.probe.Ping); err != nil {
		return err
	}
	return p.Await(ctx, "topics", p.checkTopics, kafka.ErrPartitionCounts)
}

// WatchStalls runs a kafka.StallWatch and adds its finding to readiness as a remark: the stage stays ready, because a restart
// does not help against an open transaction or failing fetches.
func (p *Process) WatchStalls(ctx context.Context, stage, topic, group string, lag *kafka.Lag) error {
	w, err := kafka.NewStallWatch(p.Kafka, stage, topic, group, lag)
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

// Await calls check until it returns nil, so that a starting stage waits for what is missing and needs no restart. It logs each
// new error. It returns the error of ctx, or an error of check that is one of final.
func (p *Process) Await(ctx context.Context, what string, check func(context.Context) error, final ...error) error {
	logged := ""
	for {
		once, cancel := context.WithTimeout(ctx, awaitTimeout)
		err := check(once)
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
		if err.Error() != logged {
			logged = err.Error()
			p.Logger.Warn("waiting for what is missing", "missing", what, "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(awaitPause):
		}
	}
}

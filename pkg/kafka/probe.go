package kafka

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Probe checks whether Kafka answers, and reads the topic set.
type Probe struct {
	topics  Topics
	cl      *kgo.Client
	brokers string
	// trouble returns why there are no credentials, if that is so.
	trouble func() error
}

// NewProbe returns a probe, which connects at its first call.
func NewProbe(cfg Config) (*Probe, error) {
	// Ping returns connection errors, so they are not logged.
	cfg.Logger = nil
	cl, err := cfg.newClient("probe", false)
	if err != nil {
		return nil, err
	}
	p := &Probe{cl: cl, topics: cfg.Topics(), brokers: strings.Join(cfg.Brokers, ","), trouble: func() error { return nil }}
	switch {
	case cfg.Security.OAuth.URL != "":
		p.trouble = cfg.Security.tokens().lastTrouble
	case cfg.Security.SASL == awsMSKIAM:
		p.trouble = awsTrouble
	}
	return p, nil
}

// Ping returns nil if any broker answers, else the error of the last broker that it tried.
func (p *Probe) Ping(ctx context.Context) error {
	if err := p.cl.Ping(ctx); err != nil {
		// A connection that waits for credentials does not return why.
		if ctx.Err() != nil {
			err = cmp.Or(p.trouble(), err)
		}
		return fmt.Errorf("asking brokers from %s on: %w", p.brokers, explain(err))
	}
	return nil
}

// TopicSet returns the topic set as of at most 250 ms ago. The error is that of ReadTopicSet.
func (p *Probe) TopicSet(ctx context.Context) (TopicSet, error) {
	return ReadTopicSet(ctx, kadm.NewClient(p.cl), p.topics)
}

// Close closes the connections.
func (p *Probe) Close() { p.cl.Close() }

package kafka

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Probe asks whether Kafka answers at all, and what the topic set is.
type Probe struct {
	topics  Topics
	cl      *kgo.Client
	brokers string
}

// NewProbe makes a probe. It connects to nothing before the first Ping.
func NewProbe(cfg Config) (*Probe, error) {
	// Failed connections are what a probe is for: Ping says them, and the log need not.
	cfg.Logger = nil
	cl, err := cfg.newClient("probe", false)
	if err != nil {
		return nil, err
	}
	return &Probe{cl: cl, topics: cfg.Topics(), brokers: strings.Join(cfg.Brokers, ",")}, nil
}

// Ping returns nil where any broker answers, else why the last one that was asked does not.
func (p *Probe) Ping(ctx context.Context) error {
	if err := p.cl.Ping(ctx); err != nil {
		return fmt.Errorf("asking brokers from %s on: %w", p.brokers, explain(err))
	}
	return nil
}

// TopicSet returns the topic set as it is now, give or take a quarter of a second. The error is that of ReadTopicSet.
func (p *Probe) TopicSet(ctx context.Context) (TopicSet, error) {
	return ReadTopicSet(ctx, kadm.NewClient(p.cl), p.topics)
}

// Close ends its connections.
func (p *Probe) Close() { p.cl.Close() }

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
	_, err := await(ctx, p, func() (struct{}, error) { return struct{}{}, p.cl.Ping(ctx) })
	if err != nil {
		return fmt.Errorf("asking brokers from %s on: %w", p.brokers, explain(err))
	}
	return nil
}

// await returns what ask returns. A connection that waits for credentials does not return why, and holds ask beyond the end of ctx: then
// await returns why.
func await[T any](ctx context.Context, p *Probe, ask func() (T, error)) (T, error) {
	type answer struct {
		of  T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		of, err := ask()
		done <- answer{of, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		if a.err = p.trouble(); a.err == nil {
			a = <-done
		}
	}
	if a.err != nil && ctx.Err() != nil {
		a.err = cmp.Or(p.trouble(), a.err)
	}
	return a.of, a.err
}

// TopicSet returns the topic set as of at most 250 ms ago. The error is that of ReadTopicSet.
func (p *Probe) TopicSet(ctx context.Context) (TopicSet, error) {
	return await(ctx, p, func() (TopicSet, error) { return ReadTopicSet(ctx, kadm.NewClient(p.cl), p.topics) })
}

// Close closes the connections.
func (p *Probe) Close() { p.cl.Close() }

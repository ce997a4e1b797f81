package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skeinhq/skein/pkg/kafka"
)

// Kafka is the configuration of the process's Kafka clients.
func (p *Process) Kafka() kafka.Config {
	return kafka.Config{Brokers: p.Brokers, TopicPrefix: p.TopicPrefix, ClientID: "skein", Logger: ClientLogger(p.Logger), Registerer: p.Registry}
}

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

const (
	// topicsTimeout bounds one try to prepare the topics.
	topicsTimeout = 10 * time.Second
	// topicsPause is the time between two tries.
	topicsPause = 2 * time.Second
)

// EnsureTopics makes the topics that are missing and returns the partition count of the set. While
// brokers do not answer, or say no, it tries again: whoever mends that has nothing to start anew. Only
// partition counts that differ end it at once: that is nothing that time mends.
func (p *Process) EnsureTopics(ctx context.Context, spec kafka.TopicSpec) (int32, error) {
	var fault atomic.Pointer[error]
	p.Admin.AddCheck("topics", func(context.Context) error {
		if err := fault.Load(); err != nil {
			return *err
		}
		return nil
	})
	said := ""
	for {
		n, err := p.ensureTopics(ctx, spec)
		switch {
		case err == nil:
			fault.Store(nil)
			return n, nil
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case errors.Is(err, kafka.ErrPartitionCounts):
			return 0, err
		}
		fault.Store(&err)
		if err.Error() != said {
			said = err.Error()
			p.Logger.Warn("topics are not ready; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(topicsPause):
		}
	}
}

func (p *Process) ensureTopics(ctx context.Context, spec kafka.TopicSpec) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, topicsTimeout)
	defer cancel()
	n, err := kafka.EnsureTopics(ctx, p.Kafka(), spec)
	if err != nil {
		return 0, fmt.Errorf("preparing topics on %s: %w", strings.Join(p.Brokers, ","), err)
	}
	return n, nil
}

package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Readers is a pool of direct readers of one topic (NewDirectReader). It exists because connecting takes longer than reading a few
// records. It is safe for concurrent use.
type Readers struct {
	cfg   Config
	topic string
	keep  int
	opts  []kgo.Opt

	mu     sync.Mutex
	idle   []*kgo.Client
	closed bool
}

// maxLentBytes limits the unpacked size of one fetch response, beyond its first batch. There may be dozens of readers, and each
// holds two responses: the one that a poll returned and the next.
const maxLentBytes = 4 << 20

// NewReaders returns a pool without connecting. The argument keep is how many unused clients the pool keeps. Call Close at the end.
func NewReaders(cfg Config, topic string, keep int, opts ...kgo.Opt) *Readers {
	return &Readers{cfg: cfg, topic: topic, keep: keep, opts: opts}
}

// Lend returns a client that reads no partition yet; call AddConsumePartitions. Pass the client to Return, or close it if a read
// failed, because the error may reach the next poll.
func (r *Readers) Lend() (*kgo.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.idle) - 1; last >= 0 {
		cl := r.idle[last]
		r.idle = r.idle[:last]
		return cl, nil
	}
	limits, err := limitUnpacking(maxLentBytes, nil) // with one partition at a time, no poll returns ErrUnpackLater
	if err != nil {
		return nil, err
	}
	return NewDirectReader(r.cfg, r.topic, nil, append(limits, r.opts...)...)
}

// Return takes back a client that reads only this partition, or none. It drops the client's buffered records.
func (r *Readers) Return(cl *kgo.Client, partition int32) {
	cl.RemoveConsumePartitions(map[string][]int32{r.topic: {partition}})
	r.mu.Lock()
	keep := !r.closed && len(r.idle) < r.keep
	if keep {
		r.idle = append(r.idle, cl)
	}
	r.mu.Unlock()
	if !keep {
		cl.Close()
	}
}

// Close closes the unused clients. Return then closes the others.
func (r *Readers) Close() {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, cl := range idle {
		cl.Close()
	}
}

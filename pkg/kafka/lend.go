package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Readers is a pool of direct readers of one topic (NewDirectReader): connecting takes longer than reading a few records. It is
// safe for concurrent use.
type Readers struct {
	cfg   Config
	topic string
	keep  int
	opts  []kgo.Opt

	mu     sync.Mutex
	idle   []*kgo.Client
	closed bool
}

// maxLentBytes limits the unpacked size of one answer, beyond its first batch. There may be dozens of readers, and each holds two
// answers: the one that a poll returned and the next.
const maxLentBytes = 4 << 20

// NewReaders returns a pool that keeps up to keep unused clients. It does not connect. Close it.
func NewReaders(cfg Config, topic string, keep int, opts ...kgo.Opt) *Readers {
	return &Readers{cfg: cfg, topic: topic, keep: keep, opts: opts}
}

// Lend returns a client that reads no partition yet; call AddConsumePartitions. Return it, or close it if a read failed: its
// error may reach the next poll.
func (r *Readers) Lend() (*kgo.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.idle) - 1; last >= 0 {
		cl := r.idle[last]
		r.idle = r.idle[:last]
		return cl, nil
	}
	limits, err := limitUnpacking(maxLentBytes) // with one partition at a time no poll has ErrUnpackLater
	if err != nil {
		return nil, err
	}
	return NewDirectReader(r.cfg, r.topic, nil, append(limits, r.opts...)...)
}

// Return takes back a client that reads this partition only, or none. It drops the client's buffered records.
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

// Close closes the unused clients, and each of the others when it is returned.
func (r *Readers) Close() {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, cl := range idle {
		cl.Close()
	}
}

package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Readers lends clients that read partitions of one topic outside of any group (NewDirectReader), and keeps those that come back for the next
// read: to connect takes longer than to read a few records. It is safe for concurrent use.
type Readers struct {
	cfg   Config
	topic string
	keep  int
	opts  []kgo.Opt

	mu     sync.Mutex
	idle   []*kgo.Client
	closed bool
}

// maxLentBytes is about what an answer to a lent reader unpacks to at most, beside the batch that is given in any case. There may be dozens of readers,
// each of which holds an answer that it has given and one that comes next.
const maxLentBytes = 4 << 20

// NewReaders returns readers of a topic that keep up to so many unused clients. It connects to nothing. Close it.
func NewReaders(cfg Config, topic string, keep int, opts ...kgo.Opt) *Readers {
	return &Readers{cfg: cfg, topic: topic, keep: keep, opts: opts}
}

// Lend returns a client that reads no partition yet (AddConsumePartitions). Give it back with Return, or close it where a read has failed: its
// error may reach the next poll.
func (r *Readers) Lend() (*kgo.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.idle) - 1; last >= 0 {
		cl := r.idle[last]
		r.idle = r.idle[:last]
		return cl, nil
	}
	limits, err := limitUnpacking(maxLentBytes) // it reads one partition at a time, so that no poll has ErrUnpackLater
	if err != nil {
		return nil, err
	}
	return NewDirectReader(r.cfg, r.topic, nil, append(limits, r.opts...)...)
}

// Return takes back a client that reads this partition alone, or none. Records that it has fetched and not given are dropped.
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

// Close closes the unused clients, and each of the others once it comes back.
func (r *Readers) Close() {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, cl := range idle {
		cl.Close()
	}
}

package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DeliveryTimeout is how long a producer tries to deliver a record before it fails the record. A record that was sent and not
// answered cannot be failed: it waits for its broker.
const DeliveryTimeout = 10 * time.Second

// NewProducer returns the producer of ingest: idempotent, acknowledged by all in-sync replicas, in order in each partition,
// without transactions. The caller sets each record's partition (record.Partition), and calls Flush before Close.
func NewProducer(cfg Config, extra ...kgo.Opt) (*kgo.Client, error) {
	opts := append(producing(),
		// Idempotent writes, kgo's default, keep retries from writing a record twice. They need acks=all, which is also what an
		// acknowledgement of ingest promises.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Without a limit, records could arrive hours after ingest has answered 503.
		kgo.RecordDeliveryTimeout(DeliveryTimeout),
		// How long a broker may wait for its replicas before it answers.
		kgo.ProduceRequestTimeout(5*time.Second),
		// How long the answer may take beyond that. The default of 10 s, for a broker that hangs, is above DeliveryTimeout.
		kgo.RequestTimeoutOverhead(3*time.Second),
		// Puts a burst into one request, and is too short to be seen in a live view. Batches also grow while five requests are in flight.
		kgo.ProducerLinger(2*time.Millisecond),
		// Callers bound their records; this limit is only a safeguard. The default of 50,000 records of any size could be 800 GB.
		kgo.MaxBufferedBytes(256<<20),
		kgo.MaxBufferedRecords(1<<20),
	)
	return cfg.newClient("producer", true, append(opts, extra...)...)
}

// transactionTimeout is how long brokers leave a transactor's transaction open, from its first record on.
const transactionTimeout = 30 * time.Second

// NewTransactor returns a producer for transactions and initialises its producer id: that fences earlier producers with the
// transactional id, and makes what they have committed readable. The caller begins and ends transactions. Records that are not
// acknowledged within transactionTimeout fail (Unacknowledged), and the transaction can only be aborted.
func NewTransactor(ctx context.Context, cfg Config, id string) (*kgo.Client, error) {
	watch := &published{topics: map[string]bool{}}
	cl, err := cfg.newClient("transactor", false, append(producing(),
		kgo.TransactionalID(id),
		// Readers of its partitions wait while the transaction is open; after a crash they wait this long.
		kgo.TransactionTimeout(transactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// A transaction is flushed as a whole; lingering only delays its end.
		kgo.ProducerLinger(0),
		kgo.MaxBufferedBytes(256<<20),
		kgo.MaxBufferedRecords(1<<20),
		kgo.WithHooks(watch),
	)...)
	if err != nil {
		return nil, err
	}
	watch.client = cl
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("taking producer id of %s: %w", id, explain(err))
	}
	return cl, nil
}

// ErrUnacknowledged means that brokers did not acknowledge the records of a transaction.
//
//nolint:staticcheck // Kafka is a name
var ErrUnacknowledged = fmt.Errorf("Kafka has not acknowledged within %v what was to be published, and will not show it: "+
	"do it again once the brokers answer", transactionTimeout)

// Unacknowledged wraps the error of a transactor's failed records with ErrUnacknowledged.
func Unacknowledged(err error) error {
	if errors.Is(err, kgo.ErrAborting) {
		return fmt.Errorf("%w: %w", ErrUnacknowledged, err)
	}
	return err
}

// published is the hook on a transactor's records.
//
// It fails records that are not acknowledged within transactionTimeout. kgo itself never fails a record that was sent and not
// answered, whatever RecordDeliveryTimeout and contexts are, because another record would get its sequence number. A transactor
// sends no record after it: the transaction is aborted, at the latest by the next producer with the transactional id.
//
// It also delays the acknowledgement of a topic's first record until kgo knows the topic (Learned).
type published struct {
	client *kgo.Client
	topics map[string]bool // known to kgo; only the goroutine that calls OnProduceRecordUnbuffered uses it

	mu    sync.Mutex
	n     int // records that are not acknowledged
	timer *time.Timer
}

func (p *published) OnProduceRecordBuffered(*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.timer = time.AfterFunc(transactionTimeout, p.client.UnsafeAbortBufferedRecords)
	}
}

func (p *published) OnProduceRecordUnbuffered(r *kgo.Record, err error) {
	if err == nil && !p.topics[r.Topic] {
		Learned(p.client)
		p.topics[r.Topic] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		p.timer.Stop()
	}
}

// Learned waits until a client has stored the metadata of topics. kgo (1.22.2) acknowledges the first records of a topic before
// that. If their transaction ends in between, EndTransaction misses them: it aborts a transaction of only such records and
// returns nil, and commits another one without advancing their sequence numbers, so that brokers refuse the next records.
func Learned(cl *kgo.Client) {
	// The topic does not exist. The call only waits for the lock under which kgo stores metadata.
	cl.PurgeTopicsFromProducing("-")
}

// producing returns the options of every client that writes.
func producing() []kgo.Opt {
	return []kgo.Opt{
		// Callers choose the partition: the thread's, or that of the event that caused the record. A partitioner would silently follow
		// a changed partition count.
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// zstd makes events 5 to 10 times smaller. No fallback codec is needed: brokers have zstd since 2.1.
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		// Counted before compression. The default of 1 MB would refuse large events.
		kgo.ProducerBatchMaxBytes(MaxBatchBytes),
	}
}

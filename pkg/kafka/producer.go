package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// DeliveryTimeout is how long a producer tries to deliver a record before it fails the record. It cannot fail a record that was
// sent and not answered; such a record waits for its broker.
const DeliveryTimeout = 10 * time.Second

// NewProducer returns the producer of ingest. It is idempotent, waits for all in-sync replicas, keeps the order in each partition,
// and uses no transactions. The caller sets each record's partition (record.Partition), and calls Flush before Close.
func NewProducer(cfg Config, extra ...kgo.Opt) (*kgo.Client, error) {
	opts := append(producing(),
		// With idempotent writes, kgo's default, a retry does not write a record twice. They need acks=all, which the acknowledgements of
		// ingest also promise.
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Without a limit, a record could be written hours after ingest has answered 503.
		kgo.RecordDeliveryTimeout(DeliveryTimeout),
		// How long a broker may wait for its replicas before it answers.
		kgo.ProduceRequestTimeout(5*time.Second),
		// How much longer a hanging broker may take. With the default of 10 s, the sum would exceed DeliveryTimeout.
		kgo.RequestTimeoutOverhead(3*time.Second),
		// Puts a burst into one request, but is not noticed in a live view. Batches also grow while five requests are in flight.
		kgo.ProducerLinger(2*time.Millisecond),
		// Callers limit their records; this limit is only a safeguard. The default, 50,000 records of any size, could be 800 GB.
		kgo.MaxBufferedBytes(256<<20),
		kgo.MaxBufferedRecords(1<<20),
	)
	return cfg.newClient("producer", true, append(opts, extra...)...)
}

// transactionTimeout is how long brokers keep a transactor's transaction open after its first record.
const transactionTimeout = 30 * time.Second

// NewTransactor returns a producer for transactions and initialises its producer id. This fences earlier producers with the same
// transactional id, and makes the records that they have committed readable. The caller begins and ends transactions. Records that
// are not acknowledged within transactionTimeout fail (Unacknowledged), and the transaction can then only be aborted.
func NewTransactor(ctx context.Context, cfg Config, id string) (*kgo.Client, error) {
	watch := &published{topics: map[string]bool{}}
	cl, err := cfg.newClient("transactor", false, append(producing(),
		kgo.TransactionalID(id),
		// While the transaction is open, readers of its partitions wait; after a crash, they wait this long.
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

// IsFenced reports whether a transactor's error means that another one has taken its transactional id.
func IsFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}

// published is a kgo hook that watches a transactor's records.
//
// It fails records that are not acknowledged within transactionTimeout. kgo itself never fails a record that was sent and not
// answered, whatever RecordDeliveryTimeout and contexts are, because a later record would get the same sequence number. A
// transactor sends no later record: the transaction is aborted, at the latest by the next producer with its transactional id.
//
// It also delays the acknowledgement of a topic's first record until kgo has stored the topic's metadata (Learned).
type published struct {
	client *kgo.Client
	topics map[string]bool // topics known to kgo; used only by the goroutine that calls OnProduceRecordUnbuffered

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

// Learned waits until a client has stored the metadata of its topics. kgo (1.22.2) acknowledges the first records of a topic
// earlier. If their transaction ends in between, EndTransaction misses them: it aborts a transaction of only such records but
// returns nil, and commits any other without advancing their sequence numbers, so that brokers refuse the next records.
func Learned(cl *kgo.Client) {
	// The topic does not exist. The call only waits for the lock under which kgo stores metadata.
	cl.PurgeTopicsFromProducing("-")
}

// producing returns the options of every client that writes.
func producing() []kgo.Opt {
	return []kgo.Opt{
		// Callers choose the partition: the thread's, or that of the event that caused the record. A partitioner would silently use a
		// changed partition count.
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// zstd makes events 5 to 10 times smaller. No fallback codec is needed: brokers have zstd since 2.1.
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		// Limits the size before compression. With the default of 1 MB, large events would fail.
		kgo.ProducerBatchMaxBytes(MaxBatchBytes),
	}
}

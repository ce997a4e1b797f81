package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DeliveryTimeout is how long a producer tries to have a record acknowledged before it gives the
// record back, as far as it may: one that was sent and never answered stays until its broker answers.
const DeliveryTimeout = 10 * time.Second

// NewProducer makes the producer of ingest: idempotent, acknowledged by all in-sync replicas, in
// order in each partition, without transactions. The caller sets each record's partition
// (record.Partition). Close flushes nothing: call Flush before.
func NewProducer(cfg Config, extra ...kgo.Opt) (*kgo.Client, error) {
	opts := append(producing(),
		// A record that was sent once and failed must not be doubled by the retry: idempotent
		// writes are kgo's default and stay on. They need acks=all, said here as it is the promise
		// behind every "accepted".
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Without a limit, records for a broker that is away would wait forever, and "503" would
		// be followed by their arrival hours later.
		kgo.RecordDeliveryTimeout(DeliveryTimeout),
		// How long a broker may wait for its replicas before it answers.
		kgo.ProduceRequestTimeout(5*time.Second),
		// How long the answer may take beyond that. The default of 10 s would make a hung broker
		// cost more than DeliveryTimeout.
		kgo.RequestTimeoutOverhead(3*time.Second),
		// Long enough to put a burst into one request, short enough that nobody sees it in a live
		// view. Batches grow by themselves while five requests are under way.
		kgo.ProducerLinger(2*time.Millisecond),
		// The callers bound what is under way; this is the backstop. The default counts 50,000
		// records whatever their size, which would be 800 GB.
		kgo.MaxBufferedBytes(256<<20),
		kgo.MaxBufferedRecords(1<<20),
	)
	return cfg.newClient("producer", true, append(opts, extra...)...)
}

// transactionTimeout is how long brokers leave a transactor's transaction open, from its first record on.
const transactionTimeout = 30 * time.Second

// NewTransactor makes a producer whose records become visible together, or not at all, and takes the
// producer id: from then on whoever had the transactional id before can commit nothing more, and what
// it has committed can be read. BeginTransaction and EndTransaction are the caller's. Records that are
// not acknowledged for as long as a transaction may last are given back (Unacknowledged): it can only be aborted.
func NewTransactor(ctx context.Context, cfg Config, id string) (*kgo.Client, error) {
	watch := &published{topics: map[string]bool{}}
	cl, err := cfg.newClient("transactor", false, append(producing(),
		kgo.TransactionalID(id),
		// Readers of the partitions that it writes to stand still while it is open, and after a crash
		// for this long.
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

// ErrUnacknowledged says that brokers went away while something was published.
var ErrUnacknowledged = fmt.Errorf("Kafka has not acknowledged within %v what was to be published, and will not show it: do it again once the brokers answer", transactionTimeout) //nolint:staticcheck // a name

// Unacknowledged says what to do where a transactor has given records back.
func Unacknowledged(err error) error {
	if errors.Is(err, kgo.ErrAborting) {
		return fmt.Errorf("%w: %w", ErrUnacknowledged, err)
	}
	return err
}

// published watches the records of a transactor, as their hooks.
//
// It gives back what is not acknowledged within transactionTimeout. kgo does not do that of itself with a record
// that was sent and never answered, whatever RecordDeliveryTimeout and contexts say: its sequence number would become
// another record's. Here none follows: the transaction is aborted, at the latest by who takes the transactional id
// next, and what brokers take after that is of an epoch that is over.
//
// And it holds back the acknowledgement of a topic's first record until kgo knows the topic (Learned).
type published struct {
	client *kgo.Client
	topics map[string]bool // that kgo knows; of the one goroutine that tells of acknowledgements

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

// Learned waits until a client has stored what it was told of topics. kgo (1.22.2) hands the first records of a topic out before
// that. Where their transaction ends in between, EndTransaction does not find them: it aborts and returns nil if there is nothing else
// in it, and else commits, but leaves their sequence numbers as they are, so that brokers refuse the next ones.
func Learned(cl *kgo.Client) {
	// There is no such topic: this waits for its turn behind what is being learned of topics, and is all that does.
	cl.PurgeTopicsFromProducing("-")
}

// producing are the options of every client that writes.
func producing() []kgo.Opt {
	return []kgo.Opt{
		// The partition is part of what is written (a thread's own, or that of the event that caused
		// the record). A partitioner would follow a changed partition count without a word.
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		// Events repeat their member names: zstd takes 5 to 10 times off. No fallback: a topic set
		// with a second codec in it helps nobody, and brokers know zstd since 2.1.
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		// Counted before compression. The default of 1 MB would refuse large events.
		kgo.ProducerBatchMaxBytes(MaxBatchBytes),
	}
}

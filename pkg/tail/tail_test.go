package tail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a tail for a test.
type started struct {
	*Tail
	t   *testing.T
	cfg kafka.Config
}

func start(t *testing.T, k kafka.Config, set ...func(*Config)) *started {
	t.Helper()
	cfg := DefaultConfig(k)
	cfg.Logger, cfg.Registerer = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	for _, f := range set {
		f(&cfg)
	}
	tail, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tail.Close() })
	return &started{tail, t, k}
}

func (s *started) follow(key string, from int64) *Reader {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), kafkatest.Timeout)
	defer cancel()
	r, err := s.Follow(ctx, key, 0, from)
	if err != nil {
		s.t.Fatalf("following %s from %d: %v", key, from, err)
	}
	s.t.Cleanup(r.Close)
	return r
}

// write writes n records to partition 0, the values numbered on from first, each of one of the threads in turn.
func (s *started) write(first, n int, threads ...string) {
	s.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{
			Topic: s.topic, Partition: 0, Key: []byte(threads[(first+i)%len(threads)]),
			Value: []byte(fmt.Sprintf("%d %s", first+i, strings.Repeat("x", 1000))),
		}
	}
	kafkatest.Produce(s.t, s.cfg, records...)
}

// read reads until n records were given, and returns their offsets.
func read(tb testing.TB, r *Reader, n int) []int64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kafkatest.Timeout)
	defer cancel()
	var offsets []int64
	for len(offsets) < n {
		b, err := r.Next(ctx)
		if err != nil {
			tb.Errorf("after %d of %d records: %v", len(offsets), n, err)
			return offsets
		}
		for _, m := range b.Records {
			offsets = append(offsets, m.Offset)
		}
	}
	return offsets
}

func expect(tb testing.TB, got, want []int64) {
	tb.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			tb.Errorf("record %d is that of offset %d, want %d", i, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		tb.Errorf("got %d records, want %d", len(got), len(want))
	}
}

// Readers join at any offset while records are written, some with a ring that is far too small. Each is given every
// record of its thread from there on, once and in order.
func TestReader_GivesEachRecordOnceFromAnyOffset(t *testing.T) {
	kafkatest.OnBoth(t, 1, func(t *testing.T, k kafka.Config) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		s := start(t, k, func(c *Config) { c.RingBytes, c.Window = 1<<20, 300 })
		threads := []string{"acme/a", "acme/b", "acme/c"}
		const all = 6000
		s.write(0, 1000, threads...)
		var readers sync.WaitGroup
		for written := 1000; written < all; written += 500 {
			for range 5 {
				from, thread := random.Int64N(int64(written)+1), random.IntN(len(threads))
				r := s.follow(threads[thread], from)
				readers.Go(func() {
					var want []int64
					for o := from; o < all; o++ {
						if int(o)%3 == thread {
							want = append(want, o)
						}
					}
					expect(t, read(t, r, len(want)), want)
				})
			}
			s.write(written, 500, threads...)
		}
		readers.Wait()
		if n := testutil.ToFloat64(s.metrics.catchUps); n == 0 {
			t.Error("nobody caught up from the log: the test shows nothing of that")
		}
	})
}

func TestReader_ThatDoesNotKeepUpIsTold(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.RingBytes = 1 << 20 })
	s.write(0, 1, "acme/a")
	slow, quick := s.follow("acme/a", 0), s.follow("acme/a", 0)
	expect(t, read(t, slow, 1), []int64{0})
	expect(t, read(t, quick, 1), []int64{0})
	slow.lastAsked = time.Now().Add(-2 * slowAfter)
	s.write(1, 2000, "acme/a", "acme/b")
	read(t, quick, 1000) // what left the ring it reads from the log
	if _, err := slow.Next(t.Context()); !errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want ErrSlow", err)
	}
	again := s.follow("acme/a", 1)
	if got := read(t, again, 1000); got[0] != 2 || got[999] != 2000 {
		t.Errorf("a new reader goes on from %d to %d, want 2 to 2000", got[0], got[999])
	}
}

// What rings leave out pushes nothing out of them.
func TestTail_RingsKeepOnlyWhatReadersWant(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) {
		c.RingBytes, c.Keep = 1<<20, func(m *kgo.Record) bool { return m.Offset%1000 == 0 }
	})
	r := s.follow("acme/a", End)
	s.write(0, 3000, "acme/a")
	expect(t, read(t, r, 3), []int64{0, 1000, 2000})
	if n := testutil.ToFloat64(s.metrics.catchUps); n != 0 {
		t.Errorf("%v readers caught up from the log", n)
	}
}

// A reader from a time on has all since then, from the ring if that reaches so far back, and else from the log.
func TestTail_FollowsFromATimeOn(t *testing.T) {
	k := kafkatest.Start(t, 1)
	now := time.Now()
	write := func(ago time.Duration, n int) {
		var records []*kgo.Record
		for range n {
			records = append(records, &kgo.Record{Topic: k.Topics().Events, Key: []byte("acme/a"), Value: make([]byte, 1000),
				Timestamp: now.Add(-ago)})
		}
		kafkatest.Produce(t, k, records...)
	}
	write(8*time.Second, 10)
	write(time.Second, 10)
	for name, set := range map[string]func(*Config){
		"from the ring":                 func(c *Config) { c.Since = 5 * time.Second },
		"beyond the ring":               func(*Config) {},
		"beyond the ring's window":      func(c *Config) { c.Since, c.Window = 5*time.Second, 5 },
		"of a ring that has dropped it": func(c *Config) { c.Since, c.RingBytes = 5*time.Second, 5000 },
		"with a window that has more":   func(c *Config) { c.Since = time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, k, func(c *Config) { c.Window = 1000 }, set)
			s.follow("acme/a", End)
			r, err := s.FollowSince(t.Context(), "acme/a", 0, 4*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			got := read(t, r, 1)
			for got[len(got)-1] < 19 {
				got = append(got, read(t, r, 1)...)
			}
			if i := slices.Index(got, 10); i < 0 || len(got)-i != 10 {
				t.Errorf("the records are %v: want all from 10 on", got)
			}
		})
	}
}

func TestTail_RefusesOffsetsThatTheLogDoesNotHave(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	s := start(t, cluster.Config, func(c *Config) { c.Window = 10 })
	s.write(0, 100, "acme/a")
	if _, err := s.Follow(t.Context(), "acme/a", 0, 101); !errors.Is(err, ErrGone) {
		t.Errorf("from the future: %v, want ErrGone", err)
	}
	if _, err := s.Follow(t.Context(), "acme/a", 7, 0); !errors.Is(err, kafka.ErrNoPartition) {
		t.Errorf("partition 7: %v, want ErrNoPartition", err)
	}
	expect(t, read(t, s.follow("acme/a", 100-3), 3), []int64{97, 98, 99})

	if err := cluster.Fake.DeleteRecords(s.topic, 0, 50); err != nil {
		t.Fatal(err)
	}
	r := s.follow("acme/a", 20)
	if _, err := r.Next(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("below the log's start: %v, want ErrGone", err)
	}
}

func TestTail_LeavesAPartitionThatNobodyReads(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1), func(c *Config) { c.Linger = time.Millisecond })
	s.write(0, 10, "acme/a")
	for round := range 3 {
		r := s.follow("acme/a", 0)
		expect(t, read(t, r, 10), []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
		r.Close()
		kafkatest.Eventually(t, "the partition is left", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.partitions) == 0
		})
		if n := testutil.ToFloat64(s.metrics.ringBytes); n != 0 {
			t.Fatalf("round %d: %v bytes are held by rings of no partition", round, n)
		}
	}
}

func TestTail_SaysThatBrokersAreAway(t *testing.T) {
	cluster := kafkatest.StartCluster(t, 1)
	wire := cluster.Wire()
	s := start(t, wire.Config, func(c *Config) { c.Away = 1500 * time.Millisecond })
	s.cfg = cluster.Config
	s.write(0, 1, "acme/a")
	r := s.follow("acme/a", 0)
	expect(t, read(t, r, 1), []int64{0})
	wire.Decide(func(kafkatest.Request) kafkatest.Fate { return kafkatest.CutBefore })
	next := func() Batch {
		ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
		defer cancel()
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := next(); !b.Away || len(b.Records) > 0 {
		t.Fatalf("%+v: want that brokers are away", b)
	}
	s.write(1, 1, "acme/a")
	wire.Decide(nil)
	expect(t, read(t, r, 1), []int64{1})
	for s.isAway() {
		next()
	}
}

func TestTail_EndsItsReaders(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1))
	r := s.follow("acme/a", 0)
	go s.Close()
	for {
		if _, err := r.Next(t.Context()); err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("got %v, want ErrClosed", err)
			}
			break
		}
	}
	<-s.ended
	if _, err := s.Follow(t.Context(), "acme/a", 0, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("a reader of a closed tail: %v, want ErrClosed", err)
	}
}

// A topic that was deleted and made again is followed from its end as it is then.
func TestTail_FollowsATopicThatWasMadeAnew(t *testing.T) {
	s := start(t, kafkatest.Start(t, 1))
	s.write(0, 3, "dev/t")
	r := s.follow("dev/t", End)
	s.write(3, 2, "dev/t")
	expect(t, read(t, r, 2), []int64{3, 4})
	adm := kadm.NewClient(s.client)
	if _, err := adm.DeleteTopic(t.Context(), s.topic); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, s.topic); err != nil {
		t.Fatal(err)
	}
	s.TopicRecreated()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	for { // a batch may say that the brokers are away
		if _, err := r.Next(ctx); errors.Is(err, ErrGone) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	r = s.follow("dev/t", End)
	s.write(0, 2, "dev/t")
	expect(t, read(t, r, 2), []int64{0, 1})
}

package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The yardsticks run as processes of their own, so that the system tells what each of them costs: the
// test's program starts itself again with yardstickVariable set.
const yardstickVariable = "SKEIN_BENCH_YARDSTICK"

func TestMain(m *testing.M) {
	if args := os.Getenv(yardstickVariable); args != "" {
		if err := yardstick(strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// yardstick runs "streams", of BenchmarkStreams, or "consumer|echo BROKERS FROM TO RECORDS" and prints "records seconds", the time from
// the first record to the last.
func yardstick(args []string) error {
	if args[0] == "streams" {
		return streamServer(args[1:])
	}
	kind, brokers, from, to := args[0], args[1], args[2], args[3]
	n, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var began time.Time
	var took time.Duration
	if kind == "consumer" {
		began, took, err = consume(ctx, strings.Split(brokers, ","), from, n)
	} else {
		began, took, err = echo(ctx, strings.Split(brokers, ","), from, to, n)
	}
	if err != nil {
		return fmt.Errorf("running yardstick %s from %s: %w", kind, began, err)
	}
	fmt.Println(n, took.Seconds())
	return nil
}

// consumerOptions and echoOptions say in words what the clients below are made with; the benchmark prints them.
const (
	consumerOptions = "kgo.NewClient(SeedBrokers, ConsumeTopics, ConsumeResetOffset(start), FetchIsolationLevel(ReadCommitted)), PollFetches"
	echoOptions     = "kgo.NewGroupTransactSession(SeedBrokers, ConsumeTopics, ConsumeResetOffset(start), ConsumerGroup, TransactionalID, FetchIsolationLevel(ReadCommitted), ProducerBatchCompression(Zstd)), a transaction for 200 ms or 10,000 records"
)

func consume(ctx context.Context, brokers []string, topic string, n int) (began time.Time, took time.Duration, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return began, 0, err
	}
	defer cl.Close()
	for seen := 0; seen < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return began, 0, err
		}
		if began.IsZero() {
			began = time.Now()
		}
		seen += fetches.NumRecords()
	}
	return began, time.Since(began), nil
}

func echo(ctx context.Context, brokers []string, from, to string, n int) (began time.Time, took time.Duration, err error) {
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumerGroup(to), kgo.TransactionalID(to), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		return began, 0, err
	}
	defer s.Close()
	for seen := 0; seen < n; {
		round, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		var records []*kgo.Record
		for round.Err() == nil && len(records) < 10_000 {
			fetches := s.PollRecords(round, 10_000)
			for it := fetches.RecordIter(); !it.Done(); {
				records = append(records, it.Next())
			}
		}
		cancel()
		if ctx.Err() != nil {
			return began, 0, ctx.Err()
		}
		if len(records) == 0 {
			continue
		}
		if began.IsZero() {
			began = time.Now()
		}
		if err := s.Begin(); err != nil {
			return began, 0, err
		}
		for _, m := range records {
			s.Produce(ctx, &kgo.Record{Topic: to, Key: m.Key, Value: m.Value, Headers: m.Headers}, kgo.AbortingFirstErrPromise(s.Client()).Promise())
		}
		committed, err := s.End(ctx, kgo.TryCommit)
		if err != nil {
			return began, 0, err
		}
		if committed {
			seen += len(records)
		}
	}
	return began, time.Since(began), nil
}

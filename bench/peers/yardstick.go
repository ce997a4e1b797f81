package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// yardstick is a process of this program that does the least for its part, so that the system tells what that costs:
//
//	consumer BROKERS TOPIC RECORDS    reads so many records, and prints the seconds that it took
//	echo     BROKERS TOPIC TO         reads a topic and writes each record to another one, in transactions, as group TO, until it is ended
//	handler  BROKERS TOPIC ADDRESS    serves ingest's path; each line of a body is a record, and the answer waits for all
func yardstick(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 4 {
		return fmt.Errorf("a yardstick takes four arguments: %q", args)
	}
	seeds, topic := kgo.SeedBrokers(strings.Split(args[1], ",")...), args[2]
	switch args[0] {
	case "consumer":
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		took, err := consume(ctx, n, seeds, kgo.ConsumeTopics(topic))
		fmt.Fprintln(stdout, took.Seconds())
		return err
	case "echo":
		return echo(ctx, args[3], seeds, kgo.ConsumeTopics(topic))
	case "handler":
		return handle(ctx, kafka.Config{Brokers: strings.Split(args[1], ","), ClientID: "handler"}, topic, args[3])
	}
	return fmt.Errorf("%q is no yardstick", args[0])
}

// reading are the options of both readers: large fetches, as fast as it goes.
func reading(more ...kgo.Opt) []kgo.Opt {
	return append(more, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(32<<20), kgo.FetchMaxPartitionBytes(8<<20))
}

func consume(ctx context.Context, n int, opts ...kgo.Opt) (took time.Duration, err error) {
	cl, err := kgo.NewClient(reading(opts...)...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	began := time.Now() // not when the first records come: a poll may return a good part of all
	for seen := 0; seen < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		seen += fetches.NumRecords()
	}
	return time.Since(began), nil
}

// echo has a transaction for 100 ms or 10,000 records.
func echo(ctx context.Context, to string, opts ...kgo.Opt) error {
	s, err := kgo.NewGroupTransactSession(reading(append(opts, kgo.ConsumerGroup(to), kgo.TransactionalID(to), kgo.DefaultProduceTopic(to),
		kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.MaxBufferedRecords(200_000))...)...)
	if err != nil {
		return err
	}
	defer s.Close()
	const most, longest = 10_000, 100 * time.Millisecond
	for ctx.Err() == nil {
		if err := s.Begin(); err != nil {
			return err
		}
		written := kgo.AbortingFirstErrPromise(s.Client())
		round, cancel := context.WithTimeout(ctx, longest)
		for n := 0; n < most && round.Err() == nil; {
			fetches := s.PollRecords(round, most-n)
			n += fetches.NumRecords()
			fetches.EachRecord(func(r *kgo.Record) {
				s.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}, written.Promise())
			})
		}
		cancel()
		committed, err := s.End(context.WithoutCancel(ctx), kgo.TryCommit)
		if err := errors.Join(err, written.Err()); err != nil && ctx.Err() == nil {
			return err
		}
		if !committed && ctx.Err() == nil {
			return errors.New("a transaction of the echo was not committed")
		}
	}
	return nil
}

func handle(ctx context.Context, cfg kafka.Config, topic, address string) error {
	producer, err := kafka.NewProducer(cfg) // as ingest has it
	if err != nil {
		return err
	}
	defer producer.Close()
	server := &http.Server{Addr: address, ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				path := strings.Split(r.URL.Path, "/")
				key, run := []byte("acme/"+path[3]), []kgo.RecordHeader{{Key: "run-id", Value: []byte(path[5])}}
				at := record.Partition(key, partitions)
				var records []*kgo.Record
				for line := range bytes.Lines(body) {
					value := bytes.TrimSuffix(line, []byte("\n"))
					records = append(records, &kgo.Record{Topic: topic, Key: key, Partition: at, Headers: run, Value: value})
				}
				err = producer.ProduceSync(r.Context(), records...).FirstErr()
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})}
	go func() {
		<-ctx.Done()
		_ = server.Close() // the process ends
	}()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

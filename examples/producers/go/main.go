// Command go sends runs to skein.events as docs/producing.md says: go run ./examples/producers/go BROKERS TOPIC FILE
//
// FILE is JSON Lines. A line with "run" begins a run and says whose it is: {"tenant": …, "thread": …, "run": …, "agent": …}.
// A line with "type" is an event of that run, any other line its input. Inputs and events are sent as they stand there.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// escape writes a part of a key: A-Z a-z 0-9 - . _ ~ stay, every other byte of the UTF-8 becomes %XX.
func escape(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }

func send(brokers, topic, file string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // Java's murmur2
		kgo.RequiredAcks(kgo.AllISRAcks()),                   // and idempotent, as franz-go is by itself
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.ProducerBatchMaxBytes(16<<20+64<<10), // one event of 16 MiB with its key and headers
	)
	if err != nil {
		return err
	}
	defer client.Close()
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// The first record that fails takes all with it that is not sent yet: nothing may be written behind a gap.
	ctx, fail := context.WithCancelCause(context.Background())
	defer fail(nil)
	var run struct{ Tenant, Thread, Run, Agent string }
	seq := 0
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			return err
		}
		if members["type"] == nil && members["run"] != nil {
			run.Agent, seq = "", 0
			if err := json.Unmarshal(line, &run); err != nil {
				return err
			}
			continue
		}
		headers := []string{"skein-version", "1", "skein-kind", "input", "run-id", run.Run} // an input has no number
		if members["type"] != nil {
			headers = []string{"skein-version", "1", "skein-kind", "event", "run-id", run.Run, "seq", strconv.Itoa(seq)}
			seq++ // from 0 in each run, so that events which are sent again are dropped
		}
		if run.Agent != "" {
			headers = append(headers, "agent", run.Agent)
		}
		record := &kgo.Record{Topic: topic, Key: []byte(escape(run.Tenant) + "/" + escape(run.Thread)), Value: line}
		for pair := range slices.Chunk(headers, 2) {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
		}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				fail(err)
			}
		})
		if ctx.Err() != nil {
			break
		}
	}
	if err := client.Flush(context.Background()); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func main() {
	if err := send(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "not all was sent: %v; send the file again\n", err)
		os.Exit(1)
	}
}

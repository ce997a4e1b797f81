// Command webhook posts each run that ends to a URL, at least once, as docs/downstream.md says:
//
//	go run ./examples/webhook BROKERS TOPIC URL SINCE
//
// A group's first start begins with the runs that ended at SINCE (RFC 3339), a later one where the last process stopped.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ended is the part of a run record that is posted.
type ended struct {
	Tenant   string          `json:"tenant"`
	ThreadID string          `json:"threadId"`
	RunID    string          `json:"runId"`
	Status   string          `json:"status"`
	Agent    string          `json:"agent,omitempty"`
	EndedAt  time.Time       `json:"endedAt"`
	Terminal json.RawMessage `json:"terminal,omitempty"`
}

func run(ctx context.Context, brokers, topic, url, since string) error {
	from, err := time.Parse(time.RFC3339, since)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient( // TLS and logins: kgo.DialTLSConfig, kgo.SASL
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)), // it waits for a Kafka that is away
		kgo.ConsumerGroup("webhook"),
		kgo.InstanceID(host), // a restart goes on at once; processes of one host need names of their own
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(from.UnixMilli())),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // records of an aborted transaction never happened
		kgo.DisableAutoCommit(),                      // what is committed has been posted
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	for {
		fetches := client.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if header(r, "skein-kind") != "run" || r.Value == nil { // null: the thread was erased
				continue
			}
			var e ended
			if err := json.Unmarshal(r.Value, &e); err != nil {
				return err
			}
			if e.Status == "running" {
				continue
			}
			if err := post(ctx, url, string(r.Key)+"/"+e.Status, e); err != nil {
				return err
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				return err
			}
		}
		client.AllowRebalance()
	}
}

// receiver follows no redirect: the answer is the receiver's own, and only it gets the token.
var receiver = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post tries again for 45 s: a minute is what the group waits for a member. Then the process ends, and the next one tries.
func post(ctx context.Context, url, key string, e ended) error {
	body, err := json.Marshal(e)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key) // the same end may be posted twice
		if token := os.Getenv("WEBHOOK_TOKEN"); token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := receiver.Do(req)
		if err == nil {
			_ = resp.Body.Close() // nothing of it is read
			if resp.StatusCode < 300 {
				return nil
			}
			err = fmt.Errorf("%s answers %s", url, resp.Status)
		}
		fmt.Fprintf(os.Stderr, "%s: %v; trying again\n", key, err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: webhook BROKERS TOPIC URL SINCE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

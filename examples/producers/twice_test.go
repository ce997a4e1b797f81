package producers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/pkg/client"
)

// The example's file, sent twice as after a lost connection: each run is there once, its conversation is as when it came over HTTP.
func TestProducers_WhatIsSentTwiceIsThereOnce(t *testing.T) {
	server := devtest.Start(t)
	c := devtest.Client(t, server.URL())
	ctx, cancel := context.WithTimeout(t.Context(), sendTimeout)
	defer cancel()
	text, err := os.ReadFile("runs.jsonl")
	if err != nil {
		t.Fatal(err)
	}

	const thread = "order 17/é"
	overHTTP(ctx, t, c, text)
	want := runsOf(ctx, t, server, c, thread)
	if len(want) != 2 {
		t.Fatalf("over HTTP there are %d runs", len(want))
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			p.prepare(t)
			mine := thread + " by " + p.name
			file := filepath.Join(t.TempDir(), "runs.jsonl")
			if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte(thread), []byte(mine)), 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				p.send(t, []string{server.Broker()}, server.Kafka().Topics().Events, file)
			}
			if got := runsOf(ctx, t, server, c, mine); !slices.Equal(got, want) {
				t.Errorf("there is\n%s\nover HTTP\n%s", got, want)
			}
		})
	}
}

// overHTTP publishes the runs of a file through ingest, events numbered as the programs number them.
func overHTTP(ctx context.Context, t *testing.T, c *client.Client, text []byte) {
	t.Helper()
	var r run
	var events bytes.Buffer
	seq := 0
	post := func() {
		t.Helper()
		if _, err := c.PostEvents(ctx, r.Thread, r.Run, client.TypeSequenced, &events); err != nil {
			t.Fatal(err)
		}
	}
	for line := range bytes.Lines(text) {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(line, &members); err != nil {
			t.Fatal(err)
		}
		switch {
		case members["type"] != nil:
			fmt.Fprintf(&events, "{\"seq\":%d,\"event\":%s}\n", seq, bytes.TrimSpace(line))
			seq++
		case members["run"] != nil:
			if seq > 0 {
				post()
			}
			r, seq = run{}, 0
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatal(err)
			}
		default:
			if _, err := c.PutInput(ctx, r.Thread, r.Run, line); err != nil {
				t.Fatal(err)
			}
		}
	}
	post()
}

// runsOf returns what is there of a thread's runs, one text each: how they hang together, their conversations and counts.
func runsOf(ctx context.Context, t *testing.T, server *dev.Server, c *client.Client, thread string) []string {
	t.Helper()
	if err := server.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	get := func(path string, into any) {
		t.Helper()
		b, err := c.Get(ctx, path, nil)
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var lineage struct {
		Runs []struct {
			RunID, ParentRunID, Status string
		}
	}
	get(client.ThreadPath(thread)+"/lineage", &lineage)
	var out []string
	for _, r := range lineage.Runs {
		var found struct {
			Stats struct{ Anomalies map[string]int }
			Raw   struct{ Events, NextSeq int64 }
		}
		get(client.RunPath(thread, r.RunID), &found)
		var history struct{ Messages, State json.RawMessage }
		get(client.RunPath(thread, r.RunID)+"/history", &history)
		out = append(out, fmt.Sprintf("%+v %+v %s %s", r, found, history.Messages, history.State))
	}
	return out
}

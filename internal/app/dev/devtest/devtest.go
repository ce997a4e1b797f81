// Package devtest starts "skein dev" in the process of a test.
package devtest

import (
	"context"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/ingest/agents"
)

// Config returns the default configuration for a data folder, with free ports.
func Config(folder string) dev.Config {
	cfg := dev.DefaultConfig()
	cfg.Data, cfg.Listen, cfg.KafkaListen = folder, "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// Start starts a server on an empty folder and closes it when the test ends. The functions change its settings.
func Start(tb testing.TB, change ...func(*dev.Config)) *dev.Server {
	tb.Helper()
	cfg := Config(tb.TempDir())
	for _, c := range change {
		c(&cfg)
	}
	// Not the test's own context, which ends before its cleanups: Close stops in order.
	server, err := dev.Start(context.WithoutCancel(tb.Context()), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Errorf("stopping skein: %v", err)
		}
	})
	return server
}

// Agents makes the server a proxy for agents, each given as NAME=URL.
func Agents(tb testing.TB, pairs ...string) func(*dev.Config) {
	tb.Helper()
	known, err := agents.ParsePairs(pairs)
	if err != nil {
		tb.Fatal(err)
	}
	return func(cfg *dev.Config) { cfg.Agents = known }
}

// Client returns a client of the server at url and closes it when the test ends.
func Client(tb testing.TB, url string) *client.Client {
	tb.Helper()
	c, err := client.New(url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

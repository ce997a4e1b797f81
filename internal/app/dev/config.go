package dev

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/pkg/query"
	"github.com/skeinhq/skein/web"
)

// Tenant is the one tenant of a development server.
const Tenant = "dev"

// Config says where a development server keeps its data and where it listens.
type Config struct {
	// Data is the folder for everything that is kept. One process uses it at a time.
	Data string
	// Listen is HOST:PORT; port 0 takes a free one. Where other machines can reach it, every request needs the API key that the server
	// makes (Server.KeyFile).
	Listen string
	// KafkaListen is HOST:PORT on a loopback address.
	KafkaListen string
	// AdminListen is where metrics, health and profiles are served; empty: nowhere.
	AdminListen string
	// Partitions is the partition count of the topics where they are created.
	Partitions int
	// Checkpoint is how often an open run is written, so that it can be read.
	Checkpoint time.Duration
	// StreamLife is how long a live stream lasts at most. A short one shows a front end how often it comes again.
	StreamLife time.Duration
	// KeepEvents are the families of events that records of runs keep which begin by now.
	KeepEvents agui.Families
	// Agents are those that the proxy calls.
	Agents agents.Config
	// Links lead from the page to other tools.
	Links []web.Link
	// CORS says which web pages may call; not every one.
	CORS   app.CORS
	Logger *slog.Logger
	// Draining is called when Wait stops, with the number of requests under way, for which Wait waits
	// a while. It may be nil.
	Draining func(requests int)
}

// DefaultConfig returns what "skein dev" uses by default.
func DefaultConfig() Config {
	return Config{
		Data:        ".skein",
		Listen:      "127.0.0.1:8420",
		KafkaListen: "127.0.0.1:8492",
		Partitions:  4,
		Checkpoint:  2 * time.Second,
		StreamLife:  query.DefaultConfig().StreamLife,
		Logger:      slog.New(slog.DiscardHandler),
	}
}

// Validate reports the first thing in c that cannot work.
func (c Config) Validate() error {
	if c.Data == "" {
		return fmt.Errorf("checking data: the folder has no name")
	}
	if c.Partitions < 1 || c.Partitions > 1000 {
		return fmt.Errorf("checking partitions: %d is not between 1 and 1000", c.Partitions)
	}
	if c.Checkpoint <= 0 {
		return fmt.Errorf("checking checkpoint: %v is not a positive time", c.Checkpoint)
	}
	if c.StreamLife <= 0 {
		return fmt.Errorf("checking stream-life: %v is not a positive time", c.StreamLife)
	}
	if err := c.CORS.Check(); err != nil {
		return err
	}
	exposed, err := app.Exposed(c.Listen)
	if err != nil {
		return fmt.Errorf("checking listen: %w", err)
	}
	if !exposed && slices.Contains(c.CORS.Origins, "*") {
		return fmt.Errorf("checking cors-origin: requests need no key here, so * would let every web page in: name the origins")
	}
	for _, a := range []struct{ name, addr string }{
		{"kafka-listen", c.KafkaListen}, {"admin-listen", c.AdminListen},
	} {
		if a.name == "admin-listen" && a.addr == "" {
			continue
		}
		if err := app.CheckLoopback(a.addr); err != nil {
			return fmt.Errorf("checking %s: %w", a.name, err)
		}
	}
	return nil
}

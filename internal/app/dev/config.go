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

// Config configures a development server.
type Config struct {
	// Data is the folder for all data. Only one process can use it at a time.
	Data string
	// Listen is HOST:PORT; port 0 picks a free one. If other machines can reach it, every request needs the server's API key
	// (Server.KeyFile).
	Listen string
	// KafkaListen is HOST:PORT on a loopback address.
	KafkaListen string
	// AdminListen is the address of metrics, health and profiles; "" disables them.
	AdminListen string
	// Partitions is the partition count of new topics.
	Partitions int
	// StreamLife is the maximum duration of a live stream. A short one tests a front end's reconnection.
	StreamLife time.Duration
	// KeepEvents are the families of events that the records of new runs keep.
	KeepEvents agui.Families
	// Agents are the agents of the proxy.
	Agents agents.Config
	// Links are the page's links to other tools.
	Links []web.Link
	// CORS allows calls from web pages. It must not allow every origin, unless requests need a key.
	CORS   app.CORS
	Logger *slog.Logger
	// Draining is called when the server begins to wait for running requests, with their number. It may be nil.
	Draining func(requests int)
}

// DefaultConfig returns the defaults of "skein dev".
func DefaultConfig() Config {
	return Config{
		Data:        ".skein",
		Listen:      "127.0.0.1:8420",
		KafkaListen: "127.0.0.1:8492",
		Partitions:  4,
		StreamLife:  query.DefaultConfig().StreamLife,
		Logger:      slog.New(slog.DiscardHandler),
	}
}

// Validate returns the first error of the configuration.
func (c Config) Validate() error {
	if c.Data == "" {
		return fmt.Errorf("checking data: the folder has no name")
	}
	if c.Partitions < 1 || c.Partitions > 1000 {
		return fmt.Errorf("checking partitions: %d is not between 1 and 1000", c.Partitions)
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
	if err := app.CheckLoopback(c.KafkaListen); err != nil {
		return fmt.Errorf("checking kafka-listen: %w", err)
	}
	if c.AdminListen == "" {
		return nil
	}
	if err := app.CheckLoopback(c.AdminListen); err != nil {
		return fmt.Errorf("checking admin-listen: %w", err)
	}
	return nil
}

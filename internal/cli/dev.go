package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/ingest/agents"
	"github.com/skeinhq/skein/web"
)

// devFlags are the flags of the commands that run a development server.
type devFlags struct {
	cfg                 dev.Config
	agents, links       []string
	agentsFile          string
	logFormat, logLevel string
}

func (f *devFlags) add(cmd *cobra.Command) {
	f.cfg = dev.DefaultConfig()
	flags := cmd.Flags()
	flags.StringVar(&f.cfg.Data, "data", f.cfg.Data, "`FOLDER` for all data; only one process can use it at a time")
	flags.StringVar(&f.cfg.Listen, "listen", f.cfg.Listen, "`ADDRESS` of the HTTP API; port 0 picks a free one. "+
		"On addresses other than loopback every request needs an API key, which is generated and printed")
	flags.StringVar(&f.cfg.KafkaListen, "kafka-listen", f.cfg.KafkaListen,
		"`ADDRESS` of the embedded Kafka broker, loopback only; port 0 picks a free one")
	flags.StringVar(&f.cfg.AdminListen, "admin-listen", "", "`ADDRESS` for metrics, health and profiles, loopback only; by default none")
	flags.IntVar(&f.cfg.Partitions, "partitions", f.cfg.Partitions, "number of partitions, if the topics are created")
	flags.DurationVar(&f.cfg.StreamLife, "stream-life", f.cfg.StreamLife,
		"maximum duration of a live stream; set it short to test how a front end reconnects")
	flags.StringSliceVar(&f.agents, "agent", nil,
		"an agent behind the proxy, `NAME=URL` (repeatable): POST /v1/agents/NAME calls it and records the run")
	flags.StringVar(&f.agentsFile, "agents", "", "YAML `FILE` with agents and their settings, as ingest has it; by default none")
	app.PageLinkFlag(flags, &f.links)
	app.CORSFlag(flags, &f.cfg.CORS.Origins)
	app.KeepEventsFlag(flags, &f.cfg.KeepEvents)
	flags.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log on stderr: text or json")
	flags.StringVar(&f.logLevel, "log-level", "warn", "`LEVEL` of the log on stderr: debug, info, warn or error")
}

// config checks and returns the server's configuration.
func (f *devFlags) config(out *output) (dev.Config, error) {
	logger, err := app.NewLogger(out.stderr, f.logFormat, f.logLevel)
	if err != nil {
		return dev.Config{}, err
	}
	cfg := f.cfg
	if cfg.Agents, err = agents.ParsePairs(f.agents); err != nil {
		return dev.Config{}, app.Usagef("checking agent: %w", err)
	}
	if f.agentsFile != "" {
		more, err := agents.Read(f.agentsFile)
		if err != nil {
			return dev.Config{}, app.Usagef("%w", err)
		}
		for _, name := range cfg.Agents.Names() {
			if _, both := more[name]; both {
				return dev.Config{}, app.Usagef("--agent %s: --agents has one of that name already", name)
			}
		}
		maps.Copy(cfg.Agents, more)
	}
	if cfg.Links, err = web.ParseLinks(f.links); err != nil {
		return dev.Config{}, app.Usagef("%w", err)
	}
	cfg.Logger = logger
	for _, a := range cfg.Agents {
		cfg.CORS.Headers = append(cfg.CORS.Headers, a.Headers...)
	}
	cfg.Draining = func(requests int) {
		out.note("waiting for %s; Ctrl-C again quits now", count(requests, "request"))
	}
	if err := cfg.Validate(); err != nil {
		return dev.Config{}, app.Usagef("%w", err)
	}
	return cfg, nil
}

func newDev(out *output) *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:     "dev",
		GroupID: groupServe,
		Short:   "Run all stages in one process on one folder",
		Long: `Run all stages in one process on one folder, with an embedded Kafka broker and SQLite: nothing else
needs to be installed, and everything is still there after a restart.

It is meant for trying, developing and testing. All requests belong to the tenant "dev". On loopback addresses, the default,
requests need no key. With --listen 0.0.0.0:8420, as in a container, every request needs an API key: skein dev generates it,
prints it and keeps it in the data folder. There is no TLS. Production means Kafka and the four stage binaries.`,
		Example: `  skein dev
  skein dev --agent assistant=http://127.0.0.1:8000/
  skein dev --data /tmp/skein --listen 127.0.0.1:0
  skein dev --listen 0.0.0.0:8420`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config(out)
			if err != nil {
				return err
			}
			app.OwnFilesOnly()
			server, err := dev.Start(cmd.Context(), cfg)
			if err != nil {
				return err
			}
			if err := printReady(out, server); err != nil {
				return errors.Join(err, server.Close())
			}
			return server.Wait(cmd.Context())
		},
	}
	f.add(cmd)
	return cmd
}

// printReady prints the server's addresses. Call it only once everything answers, since scripts wait for these lines.
func printReady(out *output, s *dev.Server) error {
	out.note("the page: %s/", s.URL())
	out.note("skein is ready: HTTP API on %s, Kafka on %s", s.URL(), s.Broker())
	out.note("data in %s", s.Data())
	for _, name := range s.Agents() {
		out.note("agent %s: call %s/v1/agents/%s in its place", name, s.URL(), name)
	}
	if s.AdminURL() != "" {
		out.note("metrics, health and profiles on %s", s.AdminURL())
	}
	if s.KeyFile() == "" {
		return nil
	}
	key, err := os.ReadFile(s.KeyFile())
	if err != nil {
		return fmt.Errorf("reading API key: %w", err)
	}
	out.note("other machines can connect, so every request needs this API key (stored in %s):", s.KeyFile())
	out.note("  Authorization: Bearer %s", strings.TrimSpace(string(key)))
	return nil
}

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/admin"
	"github.com/skeinhq/skein/internal/trace"
	"github.com/skeinhq/skein/pkg/kafka"
)

// Stage is one stage as a process of its own.
type Stage struct {
	// Name is the binary's name.
	Name string
	// Short, Long and Example are its help.
	Short, Long, Example string
	// Flags adds the stage's own flags to those of all stages.
	Flags func(*pflag.FlagSet)
	// Check checks the settings before anything is opened.
	Check func(p *Process) error
	// Start builds the stage and adds its parts to the process's group. It returns once the process can take work; an error ends the
	// process.
	Start func(ctx context.Context, p *Process) error
}

// Process has what the processes of all stages share.
type Process struct {
	Logger   *slog.Logger
	Registry *prometheus.Registry
	Admin    *admin.Admin
	Group    *Group
	// Kafka is the configuration of the process's Kafka clients.
	Kafka kafka.Config
	// Tracer makes spans; nil where OpenTelemetry's environment variables name no endpoint.
	Tracer *trace.Tracer
	name   string
	stdout io.Writer
	probe  *kafka.Probe
	topics atomic.Pointer[kafka.TopicSet] // of the first successful check
}

// AdminListen returns the default address of a stage's metrics and health. The defaults let the four stages run on one host.
func AdminListen(stage string) string {
	port, ok := map[string]string{"query": "8423", "compactor": "8424", "indexer": "8425"}[stage]
	if !ok {
		port = "8421"
	}
	return "127.0.0.1:" + port
}

// StageCommand returns the command of a stage's binary.
func StageCommand(s Stage) RunFunc {
	return func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
		cmd := newStageCommand(s, os.Environ(), stderr)
		cmd.SetArgs(append([]string{}, args...)) // cobra takes os.Args for nil
		cmd.SetIn(stdin)
		cmd.SetOut(stdout)
		cmd.SetErr(stderr)
		return cmd.ExecuteContext(ctx)
	}
}

func newStageCommand(s Stage, environ []string, stderr io.Writer) *cobra.Command {
	var p Process
	var brokers KafkaFlags
	var logFormat, logLevel string
	var front adminFront
	cmd := &cobra.Command{
		Use: s.Name, Short: s.Short, Long: s.Long, Example: s.Example,
		Version:      BuildInfo().Version,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return Usagef("unexpected argument %q; see %s --help", args[0], s.Name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := Configure(cmd, environ); err != nil {
				return err
			}
			var err error
			p.name, p.stdout = s.Name, cmd.OutOrStdout()
			if p.Kafka, err = brokers.Config("skein"); err != nil {
				return err
			}
			if p.Logger, err = NewLogger(stderr, logFormat, logLevel); err != nil {
				return err
			}
			return runStage(cmd.Context(), s, &p, &front)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return Usagef("%w; see %s --help", FlagError(err), s.Name)
	})
	flags := cmd.Flags()
	flags.String(ConfigFlag, "", "YAML `FILE` with settings; SKEIN_… variables and flags override it")
	brokers.Flags(flags)
	flags.StringVar(&front.listen, "admin-listen", AdminListen(s.Name), "`ADDRESS` for metrics and health")
	flags.StringVar(&front.token, "admin-token-file", "",
		"`FILE` with the bearer token that metrics and profiles then require; health works without it, but gives no reasons")
	front.tls.Flags(flags, "admin-tls", "--admin-listen")
	flags.BoolVar(&front.profiles, "pprof", false,
		"serve profiles at --admin-listen, under /debug/pprof; everyone who can reach that address can read them")
	flags.StringVar(&logFormat, "log-format", "json", "`FORMAT` of the log on stderr: text or json")
	flags.StringVar(&logLevel, "log-level", "info", "`LEVEL` of the log on stderr: debug, info, warn or error")
	s.Flags(flags)
	return cmd
}

// NameInstance sets the value of --instance-id to the host's name if it has none.
func NameInstance(id *string) error {
	if *id != "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return Usagef("the host has no name: pass --instance-id NAME: %w", err)
	}
	*id = host
	return nil
}

// NewRegistry returns a metrics registry with the collectors of Go, the process and the build.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector())
	return r
}

// adminFront has the settings of the administration listener.
type adminFront struct {
	listen, token string
	profiles      bool
	tls           ListenerTLS
}

// serve opens the listener.
func (f *adminFront) serve(ctx context.Context, p *Process) (net.Listener, error) {
	if err := f.tls.Check(); err != nil {
		return nil, err
	}
	if f.token != "" {
		token, err := os.ReadFile(f.token)
		if err != nil {
			return nil, fmt.Errorf("reading the admin token: %w", err)
		}
		if err := p.Admin.RequireToken(strings.TrimSpace(string(token))); err != nil {
			return nil, fmt.Errorf("reading the admin token of %s: %w", f.token, err)
		}
	} else if CheckLoopback(f.listen) != nil && f.profiles {
		p.Logger.Warn("profiles can be read from other machines without a credential: set --admin-token-file, or "+
			"--admin-listen on loopback", "address", f.listen)
	}
	l, err := Listen(ctx, f.listen, "admin-listen")
	if err != nil {
		return nil, err
	}
	return p.secure(l, "admin-tls", &f.tls)
}

// secure adds TLS to a listener if t is set, and a remark to readiness while the listener's certificate cannot be used.
func (p *Process) secure(l net.Listener, name string, t *ListenerTLS) (net.Listener, error) {
	l, check, err := t.Listen(l, p.Logger)
	if err != nil {
		return nil, err
	}
	if check != nil {
		p.Admin.AddRemark(name, check)
	}
	return l, nil
}

func runStage(ctx context.Context, s Stage, p *Process, front *adminFront) error {
	OwnFilesOnly() // for the files of local stores
	p.Registry = NewRegistry()
	p.Kafka.Logger, p.Kafka.Registerer = ClientLogger(p.Logger), p.Registry
	p.Admin = admin.New(p.Registry)
	p.Admin.Identify(BuildInfo().Version, s.Name)
	if front.profiles {
		p.Admin.ServeProfiles()
	}
	p.Group = NewGroup()
	// Readiness fails from the first signal on, while running requests end.
	stop := context.AfterFunc(ctx, p.Admin.Draining)
	defer stop()

	if err := s.Check(p); err != nil {
		return err
	}
	var err error
	if p.Tracer, err = trace.New(ctx, "skein-"+s.Name, BuildInfo().Version, p.Logger); err != nil {
		return Usagef("%w", err)
	}
	l, err := front.serve(ctx, p)
	if err != nil {
		return err
	}
	p.Logger.Info("starting", "version", BuildInfo().Version, "admin", l.Addr().String())
	p.Group.Closing(ctx, "spans", p.Tracer.Close)
	// The admin listener is added before the stage, so that it stops later and a draining process still serves health and metrics.
	p.Group.Go(ctx, "admin listener", func(ctx context.Context) error {
		return ServeHTTP(ctx, l, p.Admin.Handler(), p.Logger)
	})
	if err := s.Start(ctx, p); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			p.Logger.Info("stopped before all was started")
			return p.Group.Abort(nil)
		}
		return p.Group.Abort(fmt.Errorf("starting %s: %w", s.Name, err))
	}
	p.Admin.Started()
	p.Group.Go(ctx, "watch", func(ctx context.Context) error {
		p.Admin.Watch(ctx, p.Logger)
		return nil
	})
	p.Logger.Info("started", "version", BuildInfo().Version, "admin", l.Addr().String())
	err = p.Group.Wait(ctx)
	p.Logger.Info("stopped")
	return err
}

// Command peers measures the compactor beside others that read the same events of the same real Kafka, in turn:
//
//   - consumer: a bare client that reads the topic and does nothing;
//   - echo: a bare transactional client that reads the topic and writes each record to another one;
//   - streams: the fold as a Kafka Streams topology in Java, as good as its public API lets it be;
//   - client: compactEvents of the official AG-UI client, in Node, on a file of the same events.
//
// It also tells how long a live run's end takes to be seen (live), and what ingest costs beside a bare handler (ingest, handler).
//
//	go run ./bench/peers -loads A -only consumer,echo,compactor    # quickly
//	go run ./bench/peers -cmp OLD NEW                              # do two compactors write the same?
//
// Costs are processor seconds of a process for a million events, from the operating system's account of it. Rates depend on the machine:
// only their ratios in one round say something. A figure is the median of the rounds, of ratios too.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1) //nolint:forbidigo // a command of its own
	}
}

// bench is one measurement: a topic set with a load, and what is run on it.
type bench struct {
	cfg      kafka.Config
	admin    *kadm.Client
	dir      string // of temporary files
	bin      string // of the commands
	self     string // this program
	profiles string // folder, "" for none
	pace     int
	seconds  int
	say      func(format string, args ...any)

	load   load
	events int
	file   string // with the load's events; "" if nothing reads it
	java   []string
}

// peer is one of those that are measured. Those with a load drain it in each round; the others make their own events.
type peer struct {
	name    string
	drains  bool
	measure func(*bench, context.Context, int) (result, error)
}

var peers = []peer{
	{"consumer", true, (*bench).consumer},
	{"echo", true, (*bench).echo},
	{"compactor", true, (*bench).compactor},
	{"streams", true, (*bench).streams},
	{"client", true, (*bench).client},
	{"live", false, (*bench).live},
	{"handler", false, (*bench).handler},
	{"ingest", false, (*bench).ingest},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	if len(args) > 0 && args[0] == "yardstick" {
		return yardstick(ctx, args[1:], stdout)
	}
	f := flag.NewFlagSet("peers", flag.ContinueOnError)
	f.SetOutput(stderr)
	var names []string
	for _, p := range peers {
		names = append(names, p.name)
	}
	rounds := f.Int("rounds", 3, "how often each is measured, in turn")
	loads := f.String("loads", "A,B", "loads to drain: A is 4,000 runs of 503 events, B the recordings of real frameworks under fresh ids")
	only := f.String("only", strings.Join(names, ","), "what is measured")
	scale := f.Float64("scale", 1, "events of a load, as a share of the whole one")
	out := f.String("out", ".cache/peers/results.jsonl", "`FILE` for the results, one a line, with the chart beside it")
	draw := f.String("draw", "", "draw the results in `FILE` and measure nothing")
	compare := f.Bool("cmp", false, "drain with two compactors, whose programs follow, and compare what they have written, key by key")
	b := bench{}
	f.StringVar(&b.bin, "bin", "bin", "`FOLDER` with the commands")
	f.StringVar(&b.profiles, "profile", "", "`FOLDER` for profiles of the compactor")
	f.IntVar(&b.pace, "pace", 2_000, "events a second of live")
	f.IntVar(&b.seconds, "seconds", 15, "how long live and ingest go on in a round")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *draw != "" {
		s, err := read(*draw)
		if err != nil {
			return err
		}
		return s.show(*draw, stdout)
	}
	chosen, err := choose(*only, names)
	if err != nil {
		return err
	}
	loadNames, err := choose(*loads, []string{"A", "B"})
	if err != nil {
		return err
	}
	if *compare {
		if f.NArg() != 2 {
			return errors.New("-cmp wants two programs: peers -cmp OLD NEW")
		}
		chosen = nil
	}
	end, err := b.open(ctx, chosen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	b.say = func(format string, args ...any) {
		fmt.Fprintf(stderr, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
	sizes := map[string]load{"A": made(int(4000**scale), 480), "B": recorded(max(1, int(248**scale)))}
	var toDrain []load
	for _, name := range loadNames {
		toDrain = append(toDrain, sizes[name])
	}
	if *compare {
		return b.compare(ctx, toDrain, f.Arg(0), f.Arg(1), stdout)
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return err
	}
	s, err := b.measure(ctx, toDrain, chosen, *rounds, *out)
	if err != nil {
		return err
	}
	return s.show(*out, stdout)
}

// measure measures all that are chosen, first those that drain on each load, and writes the results so far each time.
func (b *bench) measure(ctx context.Context, toDrain []load, chosen []string, rounds int, out string) (s set, err error) {
	s.Machine = b.machine(ctx)
	var draining, others []peer
	for _, p := range peers {
		switch {
		case !slices.Contains(chosen, p.name):
		case p.drains:
			draining = append(draining, p)
		default:
			others = append(others, p)
		}
	}
	all := func(load string, of []peer) error {
		for round := range rounds {
			for _, p := range of {
				r, err := p.measure(b, ctx, round)
				if err != nil {
					return fmt.Errorf("%s, load %s: %w", p.name, load, err)
				}
				r.Load, r.Peer, r.Round = load, p.name, round
				s.Results = append(s.Results, r)
				if err := s.write(out); err != nil {
					return err
				}
				b.say("%s %d %s", load, round+1, r)
			}
		}
		return nil
	}
	for _, l := range toDrain {
		if len(draining) == 0 {
			break
		}
		file := ""
		if slices.Contains(chosen, "client") {
			file = filepath.Join(b.dir, l.name+".jsonl")
		}
		if err := b.fill(ctx, l, file); err != nil {
			return s, err
		}
		if err := all(l.name, draining); err != nil {
			return s, err
		}
	}
	return s, all("live", others)
}

func choose(list string, of []string) ([]string, error) {
	chosen := strings.Split(list, ",")
	for _, name := range chosen {
		if !slices.Contains(of, name) {
			return nil, fmt.Errorf("%q is none of %s", name, strings.Join(of, ", "))
		}
	}
	return chosen, nil
}

// open finds what is needed, says what is missing before anything is measured, and starts Kafka where no brokers are named.
func (b *bench) open(ctx context.Context, chosen []string) (end func() error, err error) {
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	for peer, name := range map[string]string{"compactor": "compactor", "live": "compactor", "ingest": "ingest"} {
		if _, err := os.Stat(filepath.Join(b.bin, name)); err != nil && slices.Contains(chosen, peer) {
			return nil, fmt.Errorf("looking for the commands, which make build makes: %w", err)
		}
	}
	if b.profiles != "" {
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return nil, err
		}
	}
	if b.dir, err = os.MkdirTemp("", "skein-peers-"); err != nil {
		return nil, err
	}
	end = func() error { return os.RemoveAll(b.dir) }
	if slices.Contains(chosen, "client") {
		if err := findClient(); err != nil {
			return nil, errors.Join(err, end())
		}
	}
	if slices.Contains(chosen, "streams") {
		if b.java, err = buildStreams(ctx, b.dir); err != nil {
			return nil, errors.Join(err, end())
		}
	}
	brokers := strings.Split(os.Getenv(kafkatest.BrokersVariable), ",")
	if brokers[0] == "" {
		cluster, err := apache.Start(ctx, apache.Options{Nodes: 1, Heap: "1g", Long: true})
		if err != nil {
			return nil, errors.Join(err, end())
		}
		brokers = cluster.Brokers()
		end = func() error { return errors.Join(cluster.Close(), os.RemoveAll(b.dir)) }
	}
	b.cfg = kafka.Config{Brokers: brokers, ClientID: "peers"}
	if b.admin, err = kafka.NewAdmin(b.cfg); err != nil {
		return nil, errors.Join(err, end())
	}
	stop := end
	return func() error { b.admin.Close(); return stop() }, nil
}

// newSet makes a topic set of its own.
func (b *bench) newSet(ctx context.Context) error {
	b.cfg.TopicPrefix = fmt.Sprintf("peers-%d.", time.Now().UnixNano())
	_, err := kafka.EnsureTopics(ctx, b.cfg, kafka.TopicSpec{Partitions: partitions})
	return err
}

// fill sends a load to a topic set of its own, and drains it once, so that the broker's code and page cache are warm for all alike.
func (b *bench) fill(ctx context.Context, l load, file string) (err error) {
	if err := b.newSet(ctx); err != nil {
		return err
	}
	if b.load, b.file = l, file; file != "" {
		if _, err := l.write(file); err != nil {
			return err
		}
	}
	began := time.Now()
	if b.events, err = send(ctx, b.cfg, l.each, 0, nil); err != nil {
		return err
	}
	b.say("%s: %d events of %d threads sent in %s", l.name, b.events, l.threads, time.Since(began).Round(time.Second))
	r, err := b.echo(ctx, -1)
	b.say("%s - echo, to warm up: %s", l.name, r)
	return err
}

func (b *bench) machine(ctx context.Context) machine {
	m := machine{Date: time.Now().UTC().Format(time.DateOnly), Processors: runtime.NumCPU(), Go: runtime.Version(), Kafka: apache.Version}
	for _, ask := range []struct {
		to      *string
		command []string
	}{
		{&m.Commit, []string{"git", "describe", "--always", "--dirty", "--exclude=*"}},
		{&m.Node, []string{"node", "--version"}},
		{&m.Java, slices.Concat(b.java[:min(1, len(b.java))], []string{"--version"})},
		{&m.Processor, []string{"sed", "-n", "s/^model name.*: //p;T;q", "/proc/cpuinfo"}},
	} {
		if out, err := command(ctx, ask.command...); err == nil { // what is not there did not take part
			*ask.to, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
		}
	}
	return m
}

func command(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).Output()
	return string(out), err
}

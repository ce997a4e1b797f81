package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/ingest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/test/process"
)

var (
	streams = flag.Int("streams", 5_000, "open requests of BenchmarkStreams")
	pace    = flag.Int("pace", 10, "events a second of each of them")
)

// Servers run as processes of their own, so that the system tells what each of them costs: the test's program starts itself again with
// serverVariable set.
const serverVariable = "SKEIN_BENCH_SERVER"

func TestMain(m *testing.M) {
	if args := os.Getenv(serverVariable); args != "" {
		if err := streamServer(strings.Fields(args)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// BenchmarkStreams holds many requests open, each of an agent that sends some events a second and is acknowledged
// while it sends. It tells how long an acknowledgement takes (kfake, in the process of the callers), and what a
// stream costs in memory beside an idle one of net/http: a handler that has answered and waits for the body. Each of the
// two servers is a process of its own, and its memory what the system says is resident.
func BenchmarkStreams(b *testing.B) {
	for b.Loop() {
		cfg := kafkatest.Start(b, int32(*width))
		idle := startStreams(b, "idle")
		idleBytes := idle.bytesAStream(b, nil)
		ingestServer := startStreams(b, "ingest", cfg.Brokers[0], cfg.TopicPrefix)
		var took latencies
		ingestBytes := ingestServer.bytesAStream(b, &took)
		slices.Sort(took.all)
		if len(took.all) == 0 {
			b.Fatal("nothing was acknowledged")
		}
		at := func(share float64) time.Duration { return quantile(took.all, share) }
		b.Logf("%d streams of %d events/s for %d s: %d of %d events acknowledged; median %s, p99 %s, longest %s",
			*streams, *pace, *seconds, len(took.all), *streams**pace**seconds, at(.5), at(.99), took.all[len(took.all)-1])
		b.Logf("memory of a stream: %.1f KB behind its first event, idle net/http %.1f KB", ingestBytes/1000, idleBytes/1000)
		b.ReportMetric(at(.5).Seconds()*1000, "ms-median")
		b.ReportMetric(at(.99).Seconds()*1000, "ms-p99")
		b.ReportMetric(ingestBytes/1000, "KB-stream")
		b.ReportMetric(idleBytes/1000, "KB-idle")
	}
}

// streamServer is "idle", "ingest BROKERS PREFIX" or "query FOLDER BROKERS PREFIX": it says its address and serves until its input ends.
// For each line it returns unused memory to the system, and answers.
func streamServer(args []string) error {
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			panic(err)
		}
		w.WriteHeader(http.StatusOK)
		_ = rc.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	if args[0] == "ingest" {
		prefix := ""
		if len(args) > 2 {
			prefix = args[2]
		}
		stage, err := ingest.New(ingest.DefaultConfig(kafka.Config{Brokers: []string{args[1]}, TopicPrefix: prefix, ClientID: "bench"}),
			tenant.Fixed("acme"))
		if err != nil {
			return err
		}
		go func() { _ = stage.Run(context.Background()) }() // it ends with the process
		for stage.Ready() != nil {
			time.Sleep(time.Millisecond)
		}
		handler = stage.Handler()
	}
	if args[0] == "query" {
		var err error
		if handler, err = newQuery(args[1:]); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(l, handler) }()
	fmt.Println(l.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		debug.FreeOSMemory() // what pools hold goes with the second collection
		debug.FreeOSMemory()
		fmt.Println("done")
	}
	return nil
}

type streamProcess struct {
	addr string
	pid  int
	in   io.Writer
	out  *bufio.Reader
}

func startStreams(tb testing.TB, args ...string) *streamProcess {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), serverVariable+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			tb.Error(err)
		}
	})
	p := &streamProcess{pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out)}
	p.addr = p.line(tb)
	return p
}

func (p *streamProcess) line(tb testing.TB) string {
	tb.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// resident is what the process has in memory once it has given back what it does not use, in bytes.
func (p *streamProcess) resident(tb testing.TB) float64 {
	tb.Helper()
	if _, err := fmt.Fprintln(p.in); err != nil {
		tb.Fatal(err)
	}
	p.line(tb)
	n, err := process.MemoryOf(p.pid, "VmRSS:")
	if err != nil {
		tb.Fatal(err)
	}
	return float64(n)
}

// quantile is that of sorted durations.
func quantile(of []time.Duration, share float64) time.Duration {
	return of[min(len(of)-1, int(share*float64(len(of))))]
}

// latencies are those of all streams.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

// bytesAStream opens the streams and returns what each of them costs in memory. Where took is given, each then sends its
// events.
func (p *streamProcess) bytesAStream(tb testing.TB, took *latencies) float64 {
	tb.Helper()
	if took != nil { // what the process makes for its first request is not that of a stream
		first := openStream(tb, p.addr, -1)
		first.say(tb)
		first.hear(tb, 1)
		first.close(tb)
	}
	before := p.resident(tb)
	all := make([]*agentStream, *streams)
	for i := range all {
		all[i] = openStream(tb, p.addr, i)
		if took != nil {
			all[i].say(tb)
			all[i].hear(tb, 1)
		}
	}
	each := (p.resident(tb) - before) / float64(len(all))
	if took != nil {
		sendAll(tb, all, took)
	}
	for _, s := range all {
		s.close(tb)
	}
	return each
}

// agentStream is one request, written by hand: thousands of net/http's clients would take the processors from what is measured.
type agentStream struct {
	conn net.Conn
	r    *bufio.Reader

	mu    sync.Mutex
	sent  []time.Time // of the events that are not acknowledged
	first int         // the line of the first of them, from 1
}

func openStream(tb testing.TB, addr string, n int) *agentStream {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST /v1/threads/stream-%d/runs/r/events HTTP/1.1\r\nHost: skein\r\nContent-Type: application/x-ndjson\r\nAccept: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n", n); err != nil {
		tb.Fatal(err)
	}
	s := &agentStream{conn: conn, r: bufio.NewReaderSize(conn, 512), first: 1}
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			tb.Fatal(err)
		}
		if line == "\r\n" {
			return s
		}
	}
}

// say sends the next event, in a chunk of its own.
func (s *agentStream) say(tb testing.TB) {
	s.mu.Lock()
	n := s.first + len(s.sent)
	s.sent = append(s.sent, time.Now())
	s.mu.Unlock()
	event := eventOf(n, n)
	if _, err := fmt.Fprintf(s.conn, "%x\r\n%s\n\r\n", len(event)+1, event); err != nil {
		tb.Error(err)
	}
}

// hear reads acknowledgements up to that of an event, and returns how long those took that came.
func (s *agentStream) hear(tb testing.TB, last int) (took []time.Duration) {
	for s.first <= last {
		line, err := s.r.ReadSlice('\n')
		if err != nil {
			tb.Error(err)
			return took
		}
		var said struct{ Acknowledged *struct{ Line int } }
		if line[0] != '{' { // a chunk's size, or the end of it
			continue
		}
		if err := json.Unmarshal(line, &said); err != nil || said.Acknowledged == nil {
			tb.Errorf("the answer says %q: %v", line, err)
			return took
		}
		now := time.Now()
		s.mu.Lock()
		for ; s.first <= said.Acknowledged.Line; s.first++ {
			took = append(took, now.Sub(s.sent[0]))
			s.sent = s.sent[1:]
		}
		s.mu.Unlock()
	}
	return took
}

func (s *agentStream) close(tb testing.TB) {
	if err := s.conn.Close(); err != nil {
		tb.Error(err)
	}
}

// sendAll lets all streams send their events, evenly over each second.
func sendAll(tb testing.TB, all []*agentStream, took *latencies) {
	var heard sync.WaitGroup
	events := *pace * *seconds
	for _, s := range all {
		heard.Go(func() {
			mine := s.hear(tb, 1+events)
			took.mu.Lock()
			took.all = append(took.all, mine...)
			took.mu.Unlock()
		})
	}
	began, n := time.Now(), 0
	for range events {
		for _, s := range all {
			due := time.Duration(n) * time.Second / time.Duration(*pace*len(all))
			if ahead := due - time.Since(began); ahead > time.Millisecond {
				time.Sleep(ahead) // the pace is what is measured
			}
			s.say(tb)
			n++
		}
	}
	tb.Logf("sending took %s", time.Since(began).Round(10*time.Millisecond))
	heard.Wait()
}

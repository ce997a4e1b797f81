package embedded_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/embedded"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// childDir makes the test binary a broker on that folder, which the test then kills.
const childDir = "SKEIN_TEST_BROKER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		runChild(dir)
	}
	goleak.VerifyTestMain(m)
}

func runChild(dir string) {
	b, err := embedded.Start(embedded.Config{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		_, _ = os.Stdout.WriteString("error " + err.Error() + "\n")
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString(b.Addr() + "\n")
	select {}
}

func start(t *testing.T, dir, listen string) *embedded.Broker {
	t.Helper()
	b, err := embedded.Start(embedded.Config{Dir: dir, Listen: listen})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func config(addr string) kafka.Config { return kafka.Config{Brokers: []string{addr}} }

func ensure(t *testing.T, cfg kafka.Config) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kafkatest.Timeout)
	defer cancel()
	if _, err := kafka.EnsureTopics(ctx, cfg, kafka.TopicSpec{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
}

func TestBroker_KeepsItsDataOverARestart(t *testing.T) {
	dir := t.TempDir()
	b := start(t, dir, "127.0.0.1:0")
	cfg := config(b.Addr())
	ensure(t, cfg)
	kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Partition: 1, Key: []byte("k"), Value: []byte("v")})
	b.Close()
	b.Close() // a second time does nothing

	again := start(t, dir, b.Addr()) // the same address is free again
	if again.Addr() != b.Addr() {
		t.Fatalf("listens on %s, want %s", again.Addr(), b.Addr())
	}
	got := kafkatest.Consume(t, cfg, cfg.Topics().Events)
	if len(got) != 1 || got[0].Partition != 1 || string(got[0].Value) != "v" {
		t.Errorf("records are %v, want the one that was written", got)
	}
}

func TestBroker_KeepsWhatItAcknowledgedOverAKill(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 256)
	n, err := out.Read(buf)
	if err != nil || strings.HasPrefix(string(buf[:n]), "error") {
		t.Fatalf("child: %s %v", buf[:n], err)
	}
	cfg := config(strings.TrimSpace(string(buf[:n])))
	ensure(t, cfg)
	for range 10 {
		kafkatest.Produce(t, cfg, &kgo.Record{Topic: cfg.Topics().Events, Value: []byte("v")})
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed: that is its error

	b := start(t, dir, "127.0.0.1:0")
	if got := kafkatest.Consume(t, config(b.Addr()), cfg.Topics().Events); len(got) != 10 {
		t.Errorf("%d of 10 acknowledged records are there", len(got))
	}
}

func TestStart_SaysThatThePortIsInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: ln.Addr().String()})
	if !errors.Is(err, embedded.ErrAddressInUse) || !strings.Contains(err.Error(), ln.Addr().String()) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v, want one line with ErrAddressInUse and the address", err)
	}
}

func TestStart_RefusesAddressesThatClientsCouldNotUse(t *testing.T) {
	for _, addr := range []string{"", "127.0.0.1", ":8492", "0.0.0.0:8492", "[::]:8492"} {
		if b, err := embedded.Start(embedded.Config{Dir: t.TempDir(), Listen: addr}); err == nil {
			b.Close()
			t.Errorf("%q is accepted", addr)
		}
	}
	if _, err := embedded.Start(embedded.Config{Listen: "127.0.0.1:0"}); err == nil {
		t.Error("a broker without a folder is started")
	}
}

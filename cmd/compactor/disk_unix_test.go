//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

// largestFile is what a file of the command may grow to. Its stores then meet what a full disk has for them, a write that is
// refused, and nobody needs a disk of that size, or the rights to make one.
const largestFile = 1 << 20

// TestMain is also the command, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("COMPACTOR_LIMITED") == "" {
		os.Exit(m.Run())
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: largestFile, Max: largestFile}); err != nil {
		panic(err)
	}
	app.Main("compactor", app.StageCommand(stage()))
}

func TestCompactor_EndsWithOneLineWhereItsDiskRefusesWrites(t *testing.T) {
	partstest.SkipShort(t, "a compactor as a process")
	k := kafkatest.Start(t, 1)
	key, err := record.ThreadKey("acme", "t")
	if err != nil {
		t.Fatal(err)
	}
	var events []*kgo.Record
	for i := range 20 {
		run, text := fmt.Sprint("r", i), make([]byte, largestFile/4)
		for j := range text {
			text[j] = 'a' + rand.N(byte(26)) // tables are compressed
		}
		for _, event := range []string{
			fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q}`, run),
			fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%s","role":"assistant","delta":%q}`, run, text),
			fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run),
		} {
			events = append(events, &kgo.Record{
				Topic: k.Topics().Events, Key: []byte(key), Value: []byte(event),
				Headers: kafka.Headers(record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}),
			})
		}
	}
	kafkatest.Produce(t, k, events...)

	var said bytes.Buffer
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "--brokers", k.Brokers[0], "--topic-prefix", k.TopicPrefix, "--dir", dir, "--instance-id", "one",
		"--admin-listen", "127.0.0.1:0")
	cmd.Env, cmd.Stderr = append(os.Environ(), "COMPACTOR_LIMITED=1"), &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-time.After(4 * kafkatest.Timeout):
		err = errors.Join(errors.New("it has not ended"), cmd.Process.Kill(), <-ended)
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != app.ExitFailed {
		t.Errorf("it ended with %v, want exit code %d", err, app.ExitFailed)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	last := lines[len(lines)-1]
	for _, want := range []string{"compactor: running compactor: compacting: " + runstore.ErrFailed.Error() + ", in " + dir + " (",
		syscall.EFBIG.Error(), "Make room"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last line does not say %q", want)
		}
	}
	if t.Failed() {
		t.Logf("it said:\n%s", said.String())
	}
}

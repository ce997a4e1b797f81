package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/skeinhq/skein/test/parts/partstest"
)

const steering = "{\"text\":\"é ☕ \u009b2J \x7f \u202e txt\u2066 \u0085\"}\n"

func TestTTY_EscapesWhatSteersATerminal(t *testing.T) {
	const want = `{"text":"é ☕ \u009b2J \u007f \u202e txt\u2066 \u0085"}` + "\n"
	for name, write := range map[string]func(*tty) error{
		"at once": func(s *tty) error {
			_, err := io.WriteString(s, steering)
			return err
		},
		"byte by byte": func(s *tty) error {
			for i := range len(steering) {
				if n, err := s.Write([]byte{steering[i]}); err != nil || n != 1 {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tty")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := write(&tty{file: f}); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("written is %q, %v, want %q", got, err, want)
			}
		})
	}
}

func TestOutput_EscapesOnATerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		partstest.Skip(t, "there is no pseudo-terminal: "+err.Error())
	}
	defer func() { _ = errors.Join(slave.Close(), master.Close()) }() // only a test's
	if err := newOutput(slave, io.Discard, nil).document([]byte(steering)); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(master).ReadString('\n'); err != nil || !strings.Contains(got, `é ☕ \u009b2J`) {
		t.Errorf("the terminal gets %q, %v", got, err)
	}
}

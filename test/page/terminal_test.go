package page_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/skeinhq/skein/internal/parts/partstest"
	"github.com/skeinhq/skein/internal/termsvg"
	"github.com/skeinhq/skein/test/process"
)

// TestTerminal_Pictures runs skein demo in a pseudo-terminal of 80 columns and draws what it shows (SKEIN_TEST_PICTURES says where).
func TestTerminal_Pictures(t *testing.T) {
	const columns = 80
	bin, err := process.Commands(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	data := t.TempDir()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "skein"), "demo", "--exit", "--data", data, "--listen", "127.0.0.1:0", "--kafka-listen", "127.0.0.1:0")
	cmd.Env = []string{"TERM=xterm-256color", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: columns})
	if err != nil {
		partstest.Skip(t, "no pseudo-terminal, which the terminal's picture needs: "+err.Error())
	}
	defer func() { _ = terminal.Close() }() // only read
	var shown bytes.Buffer
	if _, err := io.Copy(&shown, terminal); err != nil && !errors.Is(err, syscall.EIO) { // Linux's end of a terminal
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, shown.Bytes())
	}
	// The picture is of make run: its addresses and its folder.
	text := strings.ReplaceAll(shown.String(), data, ".skein")
	text = strings.ReplaceAll(text, bin+string(filepath.Separator), "bin/")
	text = regexp.MustCompile(`Kafka on 127\.0\.0\.1:\d+`).ReplaceAllString(text, "Kafka on 127.0.0.1:8492")
	text = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).ReplaceAllString(text, "http://127.0.0.1:8420")
	text = strings.ReplaceAll(text, " --url http://127.0.0.1:8420", "")
	rows, err := termsvg.Screen(text, columns)
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		lines[n] = termsvg.Text(row)
	}
	// A line of the picture that left the screen would be wrapped.
	branches := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "trip-to-lisbon: ") })
	if branches < 0 || len(lines) != branches+1+6 || !strings.HasSuffix(lines[branches+6], "…") {
		t.Errorf("the demo does not end with the six runs of trip-to-lisbon, a line each:\n%s", strings.Join(lines, "\n"))
	}
	if !strings.Contains(text, "\x1b[36m") || !strings.Contains(text, "●") {
		t.Errorf("the picture has no colours or no nodes:\n%s", text)
	}
	var svg bytes.Buffer
	if err := termsvg.Write(&svg, rows, columns, "What make run prints: the page's address, the example conversations, and the branches of one of them"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(artefacts(t), "terminal.svg"), svg.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/apptest"
	"github.com/skeinhq/skein/test/parts/partstest"
)

func TestHelp_IsAsInTheGoldenFile(t *testing.T) {
	var all strings.Builder
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		stdout, stderr, code := skein(t, "", args...)
		if code != 0 || stderr != "" {
			t.Errorf("%v: exit %d, stderr %q", args, code, stderr)
		}
		all.WriteString("$ " + strings.Join(append([]string{"skein"}, args...), " ") + "\n" + stdout + "\n")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && !sub.IsAdditionalHelpTopicCommand() {
				walk(sub)
			}
		}
	}
	walk(newRoot(newOutput(io.Discard, io.Discard, nil), strings.NewReader("")))
	apptest.Settings(t, "skein", all.String())
	apptest.Golden(t, "help.golden", all.String())
}

func TestRun_OneClearLineForWhatCannotWork(t *testing.T) {
	config := writeFile(t, "skein.yaml", "lissten: x\n")
	agents := writeFile(t, "agents.yaml", "agents: [{name: assistant, url: 'http://127.0.0.1:1/'}]\n")
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown command":        {[]string{"thraeds"}, app.ExitUsage, "did you mean threads?"},
		"unknown flag":           {[]string{"dev", "--dta", "x"}, app.ExitUsage, "unknown flag: --dta; see skein dev --help"},
		"wrong value":            {[]string{"dev", "--partitions", "many"}, app.ExitUsage, `invalid value "many" for --partitions: want a whole number; see skein dev --help`},
		"unknown key":            {[]string{"dev", "--config", config}, app.ExitUsage, "did you mean listen?"},
		"argument missing":       {[]string{"history"}, app.ExitUsage, "no argument given; usage: skein history THREAD [RUN]"},
		"unknown subcommand":     {[]string{"context", "ues", "x"}, app.ExitUsage, `unknown command "ues"; see skein context --help`},
		"Kafka on all addresses": {[]string{"dev", "--kafka-listen", "0.0.0.0:8492"}, app.ExitUsage, "no authentication"},
		"host name":              {[]string{"dev", "--listen", "example.org:8420"}, app.ExitUsage, "use 127.0.0.1"},
		"agents of nowhere":      {[]string{"dev", "--agents", "nowhere.yaml"}, app.ExitUsage, "reading agents"},
		"an agent twice": {[]string{"dev", "--agents", agents, "--agent", "assistant=http://127.0.0.1:2/"}, app.ExitUsage,
			"--agent assistant: --agents has one of that name already"},
		"nobody answers":         {[]string{"threads", "--url", "http://127.0.0.1:1"}, app.ExitFailed, "is Skein running there?"},
		"file that is not there": {[]string{"fold", "nowhere.jsonl"}, app.ExitUsage, "no such file"},
		"unknown scope": {[]string{"keys", "new", "--tenant", "t", "--scope", "read,write", "--file", "f"}, app.ExitUsage,
			"publish, read, erase"},
		"replay of what":      {[]string{"replay"}, app.ExitUsage, "name THREAD, or pass --to TOPIC"},
		"until of a thread":   {[]string{"replay", "t", "--until", "true"}, app.ExitUsage, "name RUN"},
		"follow for machines": {[]string{"history", "t", "--follow", "--json"}, app.ExitUsage, "skein tail -o jsonl"},
		"a topic set's":       {[]string{"replay", "t", "--to", "v2.skein.runs", "--yes"}, app.ExitUsage, "belongs to a topic set"},
		"replay nowhere":      {[]string{"replay", "t", "--to", "x", "--yes", "--tenant", "a"}, app.ExitUsage, "--brokers"},
		"verify nothing":      {[]string{"verify"}, app.ExitUsage, "THREAD, or pass --all"},
		"letters of anybody":  {[]string{"dead-letters", "list", "--brokers", "127.0.0.1:1"}, app.ExitUsage, "--any-tenant"},
		"picture":             {[]string{"lineage", "t", "-o", "png"}, app.ExitUsage, "jsonl or mermaid"},
		"topics of nobody":    {[]string{"topics", "check"}, app.ExitUsage, "no Kafka brokers: pass --brokers"},
		"partitions below 0":  {[]string{"topics", "create", "--brokers", "a:1", "--partitions", "-1"}, app.ExitUsage, "neither can be negative"},
		"topics as JSON":      {[]string{"topics", "--format", "json"}, app.ExitUsage, "say strimzi or terraform"},
		"no partitions":       {[]string{"topics", "--format", "strimzi", "--partitions", "0"}, app.ExitUsage, "both must be 1 or more"},
		"prefix as code":      {[]string{"topics", "--format", "strimzi", "--topic-prefix", "a/b"}, app.ExitUsage, "checking topic prefix"},
		"bad prefix":          {[]string{"topics", "alter", "--brokers", "a:1", "--topic-prefix", "a/b"}, app.ExitUsage, "checking topic prefix"},
		"refold nothing":      {[]string{"refold"}, app.ExitUsage, "select runs: THREAD"},
		"refold twice":        {[]string{"refold", "t", "--all"}, app.ExitUsage, "select runs: THREAD"},
		"refold of whom":      {[]string{"refold", "t"}, app.ExitUsage, "the thread's tenant is missing: pass --tenant ID"},
		"refold to":           {[]string{"refold", "--range", ":1:2"}, app.ExitUsage, "want a position, and another one"},
		"refold by time":      {[]string{"refold", "--range", "@2026-09-17T12:00:00Z"}, app.ExitUsage, "12:00:00Z:: want a pos"},
		"no range":            {[]string{"refold", "--range", "1"}, app.ExitUsage, "want FROM:TO"},
		"two partitions":      {[]string{"refold", "--range", "1:2:2:3"}, app.ExitUsage, "are of different partitions"},
		"empty range":         {[]string{"refold", "--range", "1:2:1:2"}, app.ExitUsage, "its end is not behind its start"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := skein(t, "", c.args...)
			if code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit %d and one line with %q", code, stdout, stderr, c.code, c.want)
			}
		})
	}
}

func TestPublish_NeedsToKnowTheRun(t *testing.T) {
	_, stderr, code := skein(t, `{"type":"CUSTOM","name":"x","value":1}`, "publish")
	if code != app.ExitUsage || !strings.Contains(stderr, "--thread ID --run ID") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// A hint can be typed as it stands: the binary as it was typed, and the server that was asked.
func TestHint_CanBeTypedAsItStands(t *testing.T) {
	out := newOutput(io.Discard, io.Discard, nil)
	out.self = "bin/skein"
	for want, c := range map[string]struct {
		at   server
		args []string
	}{
		"bin/skein threads": {server{url: defaultURL}, []string{"threads"}},
		"bin/skein lineage 'it'\\''s one' --url http://127.0.0.1:1 --api-key-file key": {
			server{url: "http://127.0.0.1:1", keyFile: "key"}, []string{"lineage", "it's one"}},
		"bin/skein runs t --server-ca-file ca --client-cert-file cert --client-key-file own": {
			server{url: defaultURL, caFile: "ca", certFile: "cert", ownFile: "own"}, []string{"runs", "t"}},
		"bin/skein lineage 'a\uFFFDb'": {server{url: defaultURL}, []string{"lineage", "a\x1bb"}},
		// Flags behind "--" are none: an id cannot name another server.
		"bin/skein history --url http://127.0.0.1:1 -- --url=https://evil.example r": {server{url: "http://127.0.0.1:1"}, []string{"history", "--url=https://evil.example", "r"}},
	} {
		out.at = &c.at
		if got := out.hint(c.args[0], c.args[1:]...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, args := range [][]string{{"thraed", "x"}, {"topics", "mend"}, {"history", "--no-such-flag"}, {"history"}} {
		err := execute(t.Context(), out, args, strings.NewReader(""))
		if err == nil || !strings.Contains(err.Error(), "bin/skein") && !strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestRun_AClosedPipeEndsQuietly(t *testing.T) {
	var errs bytes.Buffer
	err := run(t.Context(), []string{"version"}, nil, strings.NewReader(""), closedPipe{}, &errs)
	if !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("got %v", err)
	}
	app.Report(&errs, "skein", err)
	if app.ExitCode(err) != app.ExitDone || errs.Len() > 0 {
		t.Errorf("exit %d, %q", app.ExitCode(err), errs.String())
	}
	broken := fmt.Errorf("publishing: %w", &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)})
	app.Report(&errs, "skein", broken)
	if app.ExitCode(broken) != app.ExitFailed || errs.Len() == 0 {
		t.Errorf("a broken connection: exit %d, %q", app.ExitCode(broken), errs.String())
	}
}

func TestPrintable_NothingSteersTheTerminal(t *testing.T) {
	hostile := "a\x1b[2Jb\x00c\u202Ed\u2066e\r\nf"
	got := printable(hostile)
	for _, r := range []string{"\x1b", "\x00", "\u202E", "\u2066", "\r"} {
		if strings.Contains(got, r) {
			t.Errorf("%q is still in %q", r, got)
		}
	}
	if got := oneLine(strings.Repeat("x", 50), 10); len([]rune(got)) != 10 {
		t.Errorf("cut to %q", got)
	}
	if got, want := labelled("+ ", "→ ", "one two three four five six", 24), "+ → one two three four\n+   five six\n"; got != want {
		t.Errorf("with a label:\n%s\nwant\n%s", got, want)
	}
	for _, line := range strings.Split(indent("one two three "+strings.Repeat("y", 90), "  ", 40), "\n") {
		if len([]rune(line)) > 40 {
			t.Errorf("line leaves the screen: %q", line)
		}
	}
}

// Help fits a terminal of 80 columns, but for examples; in a pipe it is as in the golden file.
func TestHelp_FitsTheScreen(t *testing.T) {
	terminal := terminalOf(t, 80)
	for _, args := range []string{"--help", "threads --help", "dev --help", "lineage --help", "dead-letters retry --help"} {
		var stdout bytes.Buffer
		out := newOutput(&stdout, io.Discard, nil)
		out.screen = terminal
		if err := execute(t.Context(), out, strings.Fields(args), strings.NewReader("")); err != nil {
			t.Fatal(err)
		}
		if text := stdout.String(); !strings.Contains(text, "Usage:") || !strings.Contains(text, "--quiet") {
			t.Errorf("skein %s prints %q", args, text)
		}
		examples := false
		for line := range strings.Lines(stdout.String()) {
			examples = strings.HasPrefix(line, "Examples:") || examples && strings.HasPrefix(line, " ")
			if line = strings.TrimRight(line, "\n"); !examples && utf8.RuneCountInString(line) > 80 {
				t.Errorf("skein %s: a line of %d characters: %s", args, utf8.RuneCountInString(line), line)
			}
		}
	}
}

// terminalOf opens a terminal of so many columns.
func terminalOf(t *testing.T, columns uint16) *os.File {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		partstest.Skip(t, "there is no pseudo-terminal: "+err.Error())
	}
	t.Cleanup(func() { _ = errors.Join(slave.Close(), master.Close()) }) // only a test's
	if err := pty.Setsize(master, &pty.Winsize{Cols: columns, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	return slave
}

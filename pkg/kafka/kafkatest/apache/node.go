package apache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errPortTaken means that another process uses a node's port.
var errPortTaken = errors.New("port is taken")

// node is one Java process and its folder. Its methods must not be called concurrently.
type node struct {
	dir, java, jars, heap string
	id                    int
	long                  bool     // Options.Long
	properties            []string // of Java, each as -Dkey=value
	starts                int
	// process is nil while the node is down.
	process *os.Process
	paused  bool
}

// logging is a log4j configuration that writes all log lines to standard output, which is a file.
const logging = `rootLogger.level=INFO
rootLogger.appenderRef.out.ref=Out
appender.out.type=Console
appender.out.name=Out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1} %m%n
`

func (n *node) configure(settings map[string]string) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return fmt.Errorf("configuring Kafka node %d: %w", n.id, err)
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		b.WriteString(key + "=" + settings[key] + "\n")
	}
	for name, content := range map[string]string{n.settingsFile(): b.String(), n.file("log4j2.properties"): logging} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return fmt.Errorf("configuring Kafka node %d: %w", n.id, err)
		}
	}
	return nil
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }
func (n *node) settingsFile() string    { return n.file("server.properties") }
func (n *node) logFile() string         { return n.file("log." + strconv.Itoa(n.starts)) }

// arguments returns the arguments of Java up to the class path.
func (n *node) arguments(heap string) []string {
	tier := "1"
	if n.long {
		tier = "4"
	}
	return append([]string{
		"-Xmx" + heap,
		// Little memory, few threads and a fast compiler, because these processes live for seconds to minutes and share few
		// cores.
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=" + tier, "-Xshare:auto",
		"-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + n.file("log4j2.properties"),
		"-cp", filepath.Join(n.jars, "*"),
	}, n.properties...)
}

// format prepares the node's data folder, because a broker does not do so itself.
func (n *node) format(ctx context.Context) error {
	args := append(n.arguments("128m"), "kafka.tools.StorageTool", "format", "--cluster-id", ClusterID, "--config", n.settingsFile())
	cmd := exec.CommandContext(ctx, n.java, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting Kafka node %d: %w: %s", n.id, err, out)
	}
	return nil
}

// up starts the node unless it is running, and waits until it answers.
func (n *node) up(ctx context.Context) error {
	if n.process != nil {
		if !exited(n.process) {
			return nil
		}
		n.process = nil
	}
	n.starts++
	// Each start has its own log file, so that ready does not find the line "started" of an earlier start.
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("starting Kafka node %d: %w", n.id, err)
	}
	defer func() { _ = log.Close() }() // the process has its own descriptor
	// The shell writes its process id before it becomes Java, so that the watchdog knows the process from the start.
	args := append([]string{"-c", `echo $$ >"$0" && exec "$@"`, n.file("pid"), n.java}, n.arguments(n.heap)...)
	cmd := exec.Command("sh", append(args, "kafka.Kafka", n.settingsFile())...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = detached()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting Kafka node %d: %w", n.id, err)
	}
	n.process = cmd.Process
	return n.ready(ctx)
}

// ready waits for the log line that a node writes when its listener is open and accepts requests.
func (n *node) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		log, err := os.ReadFile(n.logFile())
		if err != nil {
			return fmt.Errorf("starting Kafka node %d: %w", n.id, err)
		}
		if bytes.Contains(log, []byte("Kafka Server started")) {
			return nil
		}
		if exited(n.process) {
			n.process = nil
			err := errors.New("it ended")
			if bytes.Contains(log, []byte("Address already in use")) {
				err = errPortTaken
			}
			return fmt.Errorf("starting Kafka node %d: %w:\n%s", n.id, err, n.tail())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("starting Kafka node %d: %w:\n%s", n.id, ctx.Err(), n.tail())
		case <-tick.C:
		}
	}
}

// version returns the text after "Kafka version: " in the node's log, such as "4.3.1".
func (n *node) version() string {
	log, err := os.ReadFile(n.logFile())
	if err != nil {
		return "of unknown version (" + err.Error() + ")"
	}
	_, rest, ok := bytes.Cut(log, []byte("Kafka version: "))
	if !ok {
		return "of unknown version"
	}
	word, _, _ := bytes.Cut(rest, []byte("\n"))
	return string(bytes.TrimSpace(word))
}

// tail returns the last lines of the node's log.
func (n *node) tail() string {
	log, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error() + "\n"
	}
	return lastLines(slices.Collect(strings.Lines(string(log))))
}

// warnings returns the last lines of the node's log with a level above INFO, without stack traces.
func (n *node) warnings() string {
	log, err := os.ReadFile(n.logFile())
	if err != nil {
		return err.Error() + "\n"
	}
	var lines []string
	for line := range strings.Lines(string(log)) {
		if strings.HasPrefix(line, "\t") { // a setting or a line of a stack trace
			continue
		}
		if _, rest, ok := strings.Cut(line, " "); !ok || !strings.HasPrefix(rest, "INFO ") {
			lines = append(lines, line)
		}
	}
	return lastLines(lines)
}

func lastLines(lines []string) string { return strings.Join(lines[max(0, len(lines)-25):], "") }

func (n *node) kill() error { return n.end(os.Kill) }

// end sends a signal and waits until the process has ended.
func (n *node) end(sig os.Signal) error {
	if n.process == nil {
		return nil
	}
	p := n.process
	n.process, n.paused = nil, false
	if exited(p) {
		return nil
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending Kafka node %d: %w", n.id, err)
	}
	if _, err := p.Wait(); err != nil {
		return fmt.Errorf("ending Kafka node %d: %w", n.id, err)
	}
	// The process id in this file is no longer valid.
	if err := os.Remove(n.file("pid")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("ending Kafka node %d: %w", n.id, err)
	}
	return nil
}

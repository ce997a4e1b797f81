package clickhousetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/clickhousetest/chdb"
)

// The variables that turn this test binary into the engine's server.
const (
	engineLibrary = "SKEIN_CLICKHOUSETEST_LIBRARY"
	engineFolder  = "SKEIN_CLICKHOUSETEST_FOLDER"
)

// engineSessions is how many statements the engine runs at the same time.
const engineSessions = 8

// engineStart bounds the wait for the engine's first word: it comes within a second, on a machine that
// is busy within some.
const engineStart = time.Minute

func init() {
	library, dir := os.Getenv(engineLibrary), os.Getenv(engineFolder)
	if library == "" {
		return
	}
	if err := serve(library, dir); err != nil {
		fmt.Fprintln(os.Stderr, err) // into the folder, which stays for those who look for the cause
		os.Exit(1)
	}
	// The engine still merges: files may appear in a folder that was just emptied.
	for range 100 {
		if os.RemoveAll(dir) == nil {
			os.Exit(0)
		}
	}
	os.Exit(1)
}

// lifeline is the child's descriptor of a pipe whose other end the parent holds: it ends with the parent's life. It is not standard input,
// since the library's INSERT ... VALUES reads from that, as clickhouse-local's does, and on an open pipe it may wait for ever.
const lifeline = 3

// engineConfigFile is the file in the child's folder that the engine takes its configuration from, if it is there.
const engineConfigFile = "config.xml"

// serve runs the engine on a child's folder as long as the parent lives.
func serve(library, dir string) error {
	var args []string
	if config := filepath.Join(dir, engineConfigFile); exists(config) {
		args = append(args, "--config-file="+config)
	}
	h, err := chdb.New(library, filepath.Join(dir, "data"), engineSessions, args...)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Println(l.Addr())
	ended := make(chan error, 2)
	go func() { ended <- http.Serve(l, h) }()
	go func() {
		_, err := io.Copy(io.Discard, os.NewFile(lifeline, "lifeline"))
		ended <- err
	}()
	// The engine is not asked to close: what it holds is of no more use, and it takes its time.
	return <-ended
}

// engine is the child process, for messages about it.
var engine struct {
	log      string   // what it has written to standard error
	lifeline *os.File // open as long as this process lives
	stdout   *os.File
}

// fromEngine starts the engine.
func fromEngine() (Server, error) {
	library, err := Library(context.Background())
	if err != nil {
		return Server{}, err
	}
	addr, err := startEngine(library)
	if err != nil {
		return Server{}, fmt.Errorf("starting the ClickHouse engine: %w%s", err, engineLog())
	}
	return Server{Addr: "http://" + addr, Username: "default", Part: "chDB " + libraryVersion}, nil
}

// startEngine starts the child that all tests of this process share, and returns its address. No goroutine waits for it: tests that look
// for leaked goroutines would find it.
func startEngine(library string) (string, error) {
	dir, err := os.MkdirTemp("", "skein-clickhouse-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the engine: %w", err)
	}
	c, err := startChild(library, dir)
	engine.log = filepath.Join(dir, engineLogFile)
	if err != nil {
		return "", err
	}
	engine.lifeline, engine.stdout = c.lifeline, c.stdout
	return c.addr, nil
}

// engineLogFile is the file in the child's folder that has its standard error.
const engineLogFile = "engine.log"

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// child is a process with an engine. It ends where its lifeline is closed.
type child struct {
	addr             string
	cmd              *exec.Cmd
	lifeline, stdout *os.File
}

// startChild starts a child over the data in a folder, and waits for its address.
func startChild(library, dir string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the test binary: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(dir, engineLogFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("making a log file for the engine: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has it
	childLife, life, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = childLife.Close() }()
	parentOut, stdout, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	cmd := exec.Command(self)
	// Coverage of the child must not be written over the parent's.
	cmd.Env = append(os.Environ(), engineLibrary+"="+library, engineFolder+"="+dir, "GOCOVERDIR=")
	cmd.Stdout, cmd.Stderr = stdout, log
	cmd.ExtraFiles = []*os.File{childLife} // the first is the descriptor lifeline
	err = cmd.Start()
	_ = stdout.Close() // so that its end is seen when the child dies
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := parentOut.SetReadDeadline(time.Now().Add(engineStart)); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(parentOut).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("waiting for its address: %w", err)
	}
	return &child{strings.TrimSpace(line), cmd, life, parentOut}, nil
}

// engineLog returns the end of what the engine has said, for a failure's message.
func engineLog() string {
	if engine.log == "" {
		return ""
	}
	b, err := os.ReadFile(engine.log)
	if err != nil || len(b) == 0 {
		return ""
	}
	const most = 4096
	return "\nthe engine says:\n" + string(b[max(0, len(b)-most):])
}

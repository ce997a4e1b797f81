package recordings

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"sync"

	"github.com/skeinhq/skein/pkg/agui"
)

//go:embed */*.jsonl */*.json
var files embed.FS

// Thread is one recorded conversation.
type Thread struct {
	// Framework is the folder: the agent framework that produced the stream.
	Framework string
	// Name describes it, such as "approval-interrupt"; unique within its framework.
	Name     string
	ThreadID string
	// Runs are in the order in which they were made; each continues the one before.
	Runs []Run
	// Client is {messages, state, pendingInterrupts} as the official HttpAgent 1.0.0 held them
	// after the last run.
	Client json.RawMessage
}

// String returns "framework/name".
func (t Thread) String() string { return t.Framework + "/" + t.Name }

// Run is one recorded run of a thread. Its slices are shared by all callers and not to be changed.
type Run struct {
	// File is the run's path without extension, such as "pydantic-ai/multiturn-t2".
	File     string
	ThreadID string
	RunID    string
	// ParentRunID is the run before in the thread, "" for the first. The recorder put it into
	// the input; no framework repeats it on the stream.
	ParentRunID string
	// Input is the RunAgentInput as it was sent.
	Input json.RawMessage
	// Events are the events as they came, one JSON object a line, each ended by a line feed.
	Events []byte
}

// Lines returns the events one by one, without line feeds.
func (r Run) Lines() [][]byte {
	return bytes.Split(bytes.TrimSuffix(r.Events, []byte("\n")), []byte("\n"))
}

// SSE returns the response body as the framework sent it: each event as one data line and an
// empty line. All recorded bodies were exactly of this form.
func (r Run) SSE() []byte {
	var b bytes.Buffer
	b.Grow(len(r.Events) + 8*bytes.Count(r.Events, []byte("\n")))
	for _, line := range r.Lines() {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteString("\n\n")
	}
	return b.Bytes()
}

// All returns every thread, ordered by framework and name.
//
// The files are part of the binary and read once. A set that is not whole is a fault of the
// build that TestAll_IsWhole finds, hence the panic and no error.
func All() []Thread {
	threads := load()
	out := make([]Thread, len(threads))
	copy(out, threads)
	return out
}

// Find returns one thread by framework and name.
func Find(framework, name string) (Thread, bool) {
	for _, t := range load() {
		if t.Framework == framework && t.Name == name {
			return t, true
		}
	}
	return Thread{}, false
}

var load = sync.OnceValue(func() []Thread {
	threads, err := readThreads(files)
	if err != nil {
		panic(err)
	}
	return threads
})

// readThreads reads FRAMEWORK/NAME.jsonl and FRAMEWORK/NAME-t1.jsonl, -t2, … as threads.
func readThreads(fsys fs.FS) ([]Thread, error) {
	names, err := fs.Glob(fsys, "*/*.jsonl") // sorted, so that runs of a thread follow one another
	if err != nil {
		return nil, fmt.Errorf("listing recordings: %w", err)
	}
	var threads []Thread
	for _, file := range names {
		file = strings.TrimSuffix(file, ".jsonl")
		run, err := readRun(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("reading recording %s: %w", file, err)
		}
		framework, name := path.Split(threadName(file))
		framework = strings.TrimSuffix(framework, "/")
		if n := len(threads); n > 0 && threads[n-1].Framework == framework && threads[n-1].Name == name {
			threads[n-1].Runs = append(threads[n-1].Runs, run)
			continue
		}
		client, err := fs.ReadFile(fsys, threadName(file)+".client.json")
		if err != nil {
			return nil, fmt.Errorf("reading recording %s: %w", file, err)
		}
		threads = append(threads, Thread{
			Framework: framework, Name: name, ThreadID: run.ThreadID, Runs: []Run{run}, Client: client,
		})
	}
	return threads, nil
}

func readRun(fsys fs.FS, file string) (Run, error) {
	events, err := fs.ReadFile(fsys, file+".jsonl")
	if err != nil {
		return Run{}, err
	}
	input, err := fs.ReadFile(fsys, file+".input.json")
	if err != nil {
		return Run{}, err
	}
	in, err := agui.DecodeInput(input, "")
	if err != nil {
		return Run{}, fmt.Errorf("decoding input: %w", err)
	}
	return Run{
		File: file, ThreadID: in.ThreadID, RunID: in.RunID, ParentRunID: in.ParentRunID,
		Input: input, Events: events,
	}, nil
}

// threadName cuts the number of the run off: "pydantic-ai/multiturn-t2" is of "pydantic-ai/multiturn".
func threadName(file string) string {
	if i := strings.LastIndex(file, "-t"); i >= 0 && len(file) == i+3 && file[i+2] >= '1' && file[i+2] <= '9' {
		return file[:i]
	}
	return file
}

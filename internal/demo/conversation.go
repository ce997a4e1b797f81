package demo

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/client"
)

// Conversation is a thread to play.
type Conversation struct {
	ThreadID string
	// Title describes the conversation in a few words.
	Title string
	// Producer is the producer of the conversation's runs.
	Producer client.Producer
	Runs     []Run
}

// Run is a run of a conversation: the agent's input and its events.
type Run struct {
	ID     string
	Input  []byte
	Events [][]byte
}

// Branched is the thread with branches, which the demo draws.
const Branched = "trip-to-lisbon"

// titles lists the conversations. Each has a folder in conversations/ with the files N-RUN.input.json and N-RUN.jsonl of its Nth run.
var titles = []struct{ thread, title, agent, user string }{
	{"support-4711", "a refund that a person approves", "support", "ann"},
	{"research-heat-pumps", "a report by two subagents", "research", "ben"},
	{"incident-2214", "a run that fails, and is asked again", "on-call", "eve"},
	{Branched, "branches, and a booking that waits", "travel", "ann"},
}

//go:embed conversations
var files embed.FS

// Written is the time of the last event as it is in the files.
var Written = time.UnixMilli(1795255478200)

// Conversations returns all conversations, the one with branches last. The last event is of the time now, the others are as much
// earlier as they were written.
func Conversations(now time.Time) ([]Conversation, error) {
	out := make([]Conversation, 0, len(titles))
	for _, t := range titles {
		runs, err := readRuns("conversations/"+t.thread, now.Sub(Written).Milliseconds())
		if err != nil {
			return nil, fmt.Errorf("reading conversation %s: %w", t.thread, err)
		}
		out = append(out, Conversation{
			ThreadID: t.thread, Title: t.title, Runs: runs,
			Producer: client.Producer{Agent: t.agent, Labels: map[string]string{"user": t.user}},
		})
	}
	return out, nil
}

var timestamp = regexp.MustCompile(`"timestamp":\d+`)

// readRuns reads the runs of a folder in the order of their numbers, which have one digit, and makes their times so many milliseconds
// later.
func readRuns(dir string, later int64) ([]Run, error) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var runs []Run
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".jsonl")
		if !ok {
			continue
		}
		_, id, _ := strings.Cut(name, "-")
		input, err := files.ReadFile(dir + "/" + name + ".input.json")
		if err != nil {
			return nil, err
		}
		events, err := files.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, err
		}
		events = timestamp.ReplaceAllFunc(events, func(t []byte) []byte {
			name, value, _ := bytes.Cut(t, []byte(":"))
			at, _ := strconv.ParseInt(string(value), 10, 64) // digits, of this century
			return fmt.Appendf(nil, "%s:%d", name, at+later)
		})
		var compact bytes.Buffer
		if err := json.Compact(&compact, input); err != nil {
			return nil, err
		}
		runs = append(runs, Run{id, compact.Bytes(), bytes.Split(bytes.TrimSpace(events), []byte("\n"))})
	}
	return runs, nil
}

package demo

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

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

// Conversations returns all conversations, the one with branches last.
func Conversations() ([]Conversation, error) {
	out := make([]Conversation, 0, len(titles))
	for _, t := range titles {
		runs, err := readRuns("conversations/" + t.thread)
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

// readRuns reads the runs of a folder in the order of their numbers, which have one digit.
func readRuns(dir string) ([]Run, error) {
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
		var compact bytes.Buffer
		if err := json.Compact(&compact, input); err != nil {
			return nil, err
		}
		runs = append(runs, Run{id, compact.Bytes(), bytes.Split(bytes.TrimSpace(events), []byte("\n"))})
	}
	return runs, nil
}

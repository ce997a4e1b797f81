package demo

import (
	"fmt"

	"github.com/skeinhq/skein/internal/recordings"
)

// Conversation is one thread to play.
type Conversation struct {
	ThreadID string
	// Title says in a few words what it shows.
	Title string
	// Branched marks the conversations that were made from recordings, to be drawn in full.
	Branched bool
	Runs     []Run
}

// Run is one run of a conversation: what the agent was asked, and the events that it answered.
type Run struct {
	ID     string
	Input  []byte
	Events [][]byte
}

// Conversations returns all of them: those with branches first, then every recording.
func Conversations() ([]Conversation, error) {
	out, err := branched()
	if err != nil {
		return nil, err
	}
	for _, t := range recordings.All() {
		c := Conversation{ThreadID: t.ThreadID, Title: t.String()}
		for _, r := range t.Runs {
			c.Runs = append(c.Runs, Run{ID: r.RunID, Input: r.Input, Events: r.Lines()})
		}
		out = append(out, c)
	}
	return out, nil
}

// detour tells a conversation a second time from one of its runs on, in other words.
type detour struct {
	framework, name string
	threadID, title string
	// from and to are the recorded runs, from 0 and half open, that are told again.
	from, to int
	// suffix makes ids of their own for what is told again.
	suffix string
	// sameQuestion keeps the input of the first run as it is: only the answer is new.
	sameQuestion bool
	// words replaces text, as old and new in turn.
	words []string
}

var detours = []detour{
	{
		framework: "pydantic-ai", name: "multiturn", threadID: "demo-edit",
		title: "the second question is edited and sent again, and the talk goes on from there",
		from:  1, to: 3, suffix: "-edited",
		words: []string{
			`"two"`, `"two, in French"`,
			`'two' `, `'two, in French' `,
		},
	},
	{
		framework: "ag-ui-langgraph", name: "text-multiturn", threadID: "demo-regenerate",
		title: "the last answer is made again from the same question",
		from:  2, to: 3, suffix: "-again", sameQuestion: true,
		words: []string{
			`"3: "`, `"3, once more: "`,
			`turn 3: `, `turn 3, once more: `,
		},
	},
	{
		framework: "ag-ui-adk", name: "text-multiturn", threadID: "demo-fork",
		title: "another question is asked from an earlier point",
		from:  1, to: 2, suffix: "-fork",
		words: []string{
			`"Again"`, `"What else can you do?"`,
			`"2. "`, `"2, the other way. "`,
			`turn 2. `, `turn 2, the other way. `,
		},
	},
}

func branched() ([]Conversation, error) {
	var out []Conversation
	for _, d := range detours {
		c, err := d.conversation()
		if err != nil {
			return nil, fmt.Errorf("making conversation %s: %w", d.threadID, err)
		}
		out = append(out, c)
	}
	return out, nil
}

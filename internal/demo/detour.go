package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/skeinhq/skein/internal/recordings"
)

// laterBy is how much later the detour of a recording takes place, in milliseconds.
const laterBy = 60_000

// conversation returns the recorded runs, followed by those told again.
//
// It works on JSON text: an id is a whole JSON string and can be replaced between its quotes
// wherever it stands, also in a framework's own copy of the conversation inside the state, and
// nothing else changes.
func (d detour) conversation() (Conversation, error) {
	t, ok := recordings.Find(d.framework, d.name)
	if !ok || d.to > len(t.Runs) || d.from >= d.to {
		return Conversation{}, fmt.Errorf("finding recording %s/%s: it is not there or has too few runs", d.framework, d.name)
	}
	c := Conversation{ThreadID: d.threadID, Title: d.title, Branched: true}
	own := strings.NewReplacer(quoted(t.ThreadID), quoted(d.threadID))
	for _, r := range t.Runs {
		run, err := retell(r, own)
		if err != nil {
			return Conversation{}, err
		}
		c.Runs = append(c.Runs, run)
	}

	renames := []string{quoted(t.ThreadID), quoted(d.threadID)}
	for _, id := range d.newIDs(t.Runs) {
		renames = append(renames, quoted(id), quoted(id+d.suffix))
	}
	again := strings.NewReplacer(append(renames, d.words...)...)
	for _, r := range t.Runs[d.from:d.to] {
		run, err := retell(r, again)
		if err != nil {
			return Conversation{}, err
		}
		for i, e := range run.Events {
			run.Events[i] = postpone(e)
		}
		c.Runs = append(c.Runs, run)
	}
	return c, nil
}

// newIDs returns the ids that first appear in the runs told again, in order of appearance.
func (d detour) newIDs(runs []recordings.Run) []string {
	seen := make(map[string]bool)
	for _, r := range runs[:d.from] {
		for _, id := range idsIn(r.Input, r.Events) {
			seen[id] = true
		}
	}
	if d.sameQuestion {
		for _, id := range idsIn(runs[d.from].Input) {
			seen[id] = true
		}
		delete(seen, runs[d.from].RunID)
	}
	var out []string
	for _, r := range runs[d.from:d.to] {
		for _, id := range idsIn(r.Input, r.Events) {
			if !seen[id] {
				seen[id] = true
				out = append(out, id)
			}
		}
	}
	return out
}

var idMember = regexp.MustCompile(`"(?:id|runId|messageId|toolCallId)"\s*:\s*"([^"\\]+)"`)

func idsIn(texts ...[]byte) []string {
	var out []string
	for _, text := range texts {
		for _, m := range idMember.FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
	}
	return out
}

var parentMember = regexp.MustCompile(`"parentRunId":"[^"]*",?`)

// retell returns a recorded run in other words and without the name of its parent.
func retell(r recordings.Run, words *strings.Replacer) (Run, error) {
	var input bytes.Buffer
	if err := json.Compact(&input, r.Input); err != nil {
		return Run{}, fmt.Errorf("compacting input of %s: %w", r.File, err)
	}
	text := words.Replace(parentMember.ReplaceAllString(input.String(), ""))
	out := Run{ID: unquoted(words.Replace(quoted(r.RunID))), Input: []byte(text)}
	for _, line := range r.Lines() {
		out.Events = append(out.Events, []byte(words.Replace(string(line))))
	}
	return out, nil
}

var timestampMember = regexp.MustCompile(`"timestamp":([0-9]+)`)

// postpone moves an event's timestamp, so that what is told again happens after what it replaces.
func postpone(event []byte) []byte {
	return timestampMember.ReplaceAllFunc(event, func(member []byte) []byte {
		ms, err := strconv.ParseInt(string(bytes.TrimPrefix(member, []byte(`"timestamp":`))), 10, 64)
		if err != nil {
			return member // more digits than a time has: not a time
		}
		return strconv.AppendInt([]byte(`"timestamp":`), ms+laterBy, 10)
	})
}

func quoted(id string) string   { return `"` + id + `"` }
func unquoted(id string) string { return strings.Trim(id, `"`) }

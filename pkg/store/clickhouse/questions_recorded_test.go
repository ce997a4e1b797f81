package clickhouse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/partition"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// recorded are the records that the compactor makes of the recordings, each thread some hours behind the last. In every other thread the last question is asked
// again, in every third another one in its place: by a client that gives the message a new id, or the same. The agent loses an event of the latter.
func recorded(t *testing.T) (entries []store.Entry, final []*record.Run) {
	t.Helper()
	for i, thread := range recordings.All() {
		at := time.Date(2026, 9, 1, 8, 0, 0, 0, time.UTC).Add(time.Duration(11*i) * time.Hour)
		var sources []partition.Source
		play := func(run string, input []byte, events [][]byte) {
			add := func(kind record.Kind, value []byte) {
				sources = append(sources, partition.Source{Headers: record.Headers{
					Kind: kind, RunID: run, Seq: -1, Agent: thread.Framework, Labels: []record.Label{{Key: "team", Value: []string{"red", "blue"}[i%2]}},
				}, Value: value, At: at})
				at = at.Add(137 * time.Millisecond)
			}
			add(record.KindInput, input)
			for _, e := range events {
				add(record.KindEvent, e)
			}
			at = at.Add(time.Minute)
		}
		for _, r := range thread.Runs {
			play(r.RunID, r.Input, r.Lines())
		}
		last := thread.Runs[len(thread.Runs)-1]
		instead := func(run, text string, lost int) {
			renamed := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"`+last.RunID+`"`), []byte(`"`+run+`"`)) }
			var events [][]byte
			for n, e := range last.Lines() {
				if n != lost {
					events = append(events, renamed(e))
				}
			}
			play(run, asks(t, renamed(last.Input), i%2 == 0, text), events)
		}
		if i%2 == 0 {
			instead("again", "", -1)
		}
		if i%3 == 0 {
			instead("edited", "Something else", 1)
		}
		records, _, err := partition.Offline(partition.DefaultConfig(), "recorded", thread.ThreadID, sources)
		if err != nil {
			t.Fatalf("%s: %v", thread, err)
		}
		for _, r := range records {
			entries = append(entries, store.Entry{
				Partition: 0, Version: int64(len(entries)), Tenant: "recorded", ThreadID: r.ThreadID, RunID: r.RunID, Run: r, At: at,
			})
			final = append(final, r)
		}
	}
	return entries, final
}

// asks gives the last message of a user in an input a new id, and a text unless that is empty.
func asks(t *testing.T, input []byte, newID bool, text string) []byte {
	t.Helper()
	var in map[string]json.RawMessage
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(input, &in); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(in["messages"], &messages); err != nil {
		t.Fatal(err)
	}
	for i := len(messages) - 1; i >= 0; i-- {
		if string(messages[i]["role"]) != `"user"` {
			continue
		}
		if newID {
			messages[i]["id"] = json.RawMessage(fmt.Sprintf("%q", fmt.Sprint("new-", len(text))))
		}
		if text != "" {
			messages[i]["content"] = agui.AppendString(nil, text)
		}
		break
	}
	var err error
	if in["messages"], err = json.Marshal(messages); err == nil {
		input, err = json.Marshal(in)
	}
	if err != nil {
		t.Fatal(err)
	}
	return input
}

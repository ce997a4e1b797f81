// Package partitiontest writes logs of skein.events for the tests of the compactor and of its partitions.
package partitiontest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Script is one partition of skein.events in the making. Time stands still unless the test moves it.
type Script struct {
	TB     testing.TB
	Topics kafka.Topics
	Now    time.Time
	// Events is the log; the index is the offset.
	Events []*kgo.Record
	// Says makes up what records say of their producer; nil: they say nothing.
	Says *rand.Rand
}

// New returns an empty log.
func New(tb testing.TB) *Script {
	return &Script{TB: tb, Topics: kafka.Config{}.Topics(), Now: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)}
}

// Send appends an event of tenant acme to the log. A run of "" sends no header.
func (s *Script) Send(thread, run, value string, headers ...kgo.RecordHeader) *kgo.Record {
	s.TB.Helper()
	return s.SendKind(record.KindEvent, thread, run, value, headers...)
}

// Input appends a run's input.
func (s *Script) Input(thread, run, value string) *kgo.Record {
	s.TB.Helper()
	return s.SendKind(record.KindInput, thread, run, value)
}

// Erase appends a request to erase a thread.
func (s *Script) Erase(thread string) { s.SendKind(record.KindErase, thread, "", `{}`) }

// Turn appends a whole run of thread t that answers with one message.
func (s *Script) Turn(run, message string) {
	s.TB.Helper()
	s.Send("t", run, Started(run))
	s.Send("t", run, Text(message, "answer "+message))
	s.Send("t", run, Finished(run))
}

// Chain appends three runs of thread t, one from the other: the first and the last say "one", the second does not.
func (s *Script) Chain() {
	s.TB.Helper()
	for i, message := range []string{"one", "two", "one again"} {
		run := fmt.Sprintf("r%d", i+1)
		s.Send("t", run, Started(run))
		s.Send("t", run, Text("m"+run, message))
		s.Send("t", run, fmt.Sprintf(`{"type":"STATE_DELTA","delta":[{"op":"add","path":"/%s","value":"%s"}]}`, run, message))
		s.Send("t", run, Finished(run))
	}
}

// TurnOf appends a whole run of a thread.
func (s *Script) TurnOf(thread, id string) {
	s.TB.Helper()
	s.Send(thread, id, Started(id))
	s.Send(thread, id, Text("m"+id, "x"))
	s.Send(thread, id, Finished(id))
}

// SendKind appends a record of any kind.
func (s *Script) SendKind(kind record.Kind, thread, run, value string, headers ...kgo.RecordHeader) *kgo.Record {
	s.TB.Helper()
	key, err := record.ThreadKey("acme", thread)
	if err != nil {
		s.TB.Fatal(err)
	}
	m := &kgo.Record{
		Topic: s.Topics.Events, Key: []byte(key), Value: []byte(value), Timestamp: s.Now,
		Headers: append(kafka.Headers(record.Headers{Kind: kind, RunID: run, Seq: -1}), headers...),
	}
	if s.Says != nil {
		m.Headers = append(m.Headers, sayings(s.Says)...)
	}
	return s.Append(m)
}

// Append appends a record as it is, and gives it its offset.
func (s *Script) Append(m *kgo.Record) *kgo.Record {
	m.Offset = int64(len(s.Events))
	s.Events = append(s.Events, m)
	return m
}

// sayings makes up what a record says of its producer.
func sayings(rng *rand.Rand) (out []kgo.RecordHeader) {
	say := func(name string, values ...string) {
		out = append(out, kgo.RecordHeader{Key: name, Value: []byte(values[rng.IntN(len(values))])})
	}
	if rng.IntN(4) == 0 {
		_ = rng.IntN(2) // the golden histories were made with this draw
		say(record.HeaderAgent, "shop", "desk", "")
	}
	for range rng.IntN(4) - 1 {
		say(record.HeaderLabelPrefix+strconv.Itoa(rng.IntN(20)), "a", "b")
	}
	if rng.IntN(4) == 0 { // of what is no end it says nothing
		say(record.HeaderSynthetic, "true")
	}
	return out
}

// Seq is the header that numbers an event.
func Seq(n int) kgo.RecordHeader {
	return kgo.RecordHeader{Key: record.HeaderSeq, Value: []byte(strconv.Itoa(n))}
}

// Started is the first event of a run of thread t.
func Started(run string) string {
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":%q}`, run)
}

// Finished is the last event of a run of thread t.
func Finished(run string) string {
	return fmt.Sprintf(`{"type":"RUN_FINISHED","threadId":"t","runId":%q}`, run)
}

// Text is a chunk of an assistant's message.
func Text(id, delta string) string {
	return fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":%q,"role":"assistant","delta":%q}`, id, delta)
}

// Custom is an event that changes no message.
func Custom(name string) string { return fmt.Sprintf(`{"type":"CUSTOM","name":%q,"value":1}`, name) }

// UserMessage is a message of an input.
func UserMessage(id, content string) string {
	return fmt.Sprintf(`{"id":%q,"role":"user","content":%q}`, id, content)
}

// AssistantMessage is a message of an input.
func AssistantMessage(id, content string) string {
	return fmt.Sprintf(`{"id":%q,"role":"assistant","content":%q}`, id, content)
}

package partition

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
)

const lateError = `{"type":"RUN_ERROR","message":"flush failed","code":"FLUSH"}`

// A RUN_ERROR after RUN_FINISHED makes the run a failed one, once. What it left and the runs that went on from it stay.
func TestPartition_WritesARunThatFailedAfterItsEndOnceMore(t *testing.T) {
	interrupted := strings.Replace(finished("r"), "}", `,"outcome":{"type":"interrupt","interrupts":[{"id":"i","reason":"approval"}]}}`, 1)
	cancelled := strings.Replace(finished("r"), "}", `,"outcome":{"type":"cancelled"}}`, 1)
	for name, c := range map[string]struct {
		end, header string
		was         record.Status
	}{
		"finished":                       {finished("r"), "r", record.StatusFinished},
		"interrupted":                    {interrupted, "r", record.StatusInterrupted},
		"cancelled by the agent":         {cancelled, "r", record.StatusCancelled},
		"the error does not name it":     {finished("r"), "", record.StatusFinished},
		"nor does the interrupted run's": {interrupted, "", record.StatusInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("t", "r", started("r"))
			s.Send("t", "r", text("m", "hello"))
			s.Send("t", "r", c.end)
			s.all()
			before := s.run("r")
			equal(t, "status before", before.Status, c.was)
			messages, state := s.history("r")
			if c.header != "" { // else the child's start would make it the child's
				s.Send("t", "r2", started("r2")) // 3
			}
			s.Send("t", c.header, lateError)
			s.Send("t", "r", lateError) // that is known
			s.Send("t", "r2", started("r2"))
			s.Send("t", "r2", finished("r2"))
			s.all()
			want := *before
			want.FailLate(record.LateError{Offset: int64(slices.IndexFunc(s.Events, isLate)), Event: []byte(lateError)})
			equal(t, "record", s.run("r"), &want)
			equal(t, "status", want.Status, record.StatusError)
			gotMessages, gotState := s.history("r")
			equal(t, "history", []string{gotMessages, gotState}, []string{messages, state})
			r2 := s.run("r2")
			equal(t, "next run", []any{r2.ParentRunID, r2.Base, r2.Status}, []any{"r", "r", record.StatusFinished})
			equal(t, "records of the run", s.recordsOf("r"), 2)
			equal(t, "dead letters", s.letters(), []string{})
			s.checkHeads()
			s.proves()
		})
	}
}

// An end that is an error already, one by Skein's proxy, and a closed run do not change.
func TestPartition_LeavesOtherEndsToThemselves(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "error", started("error"))
	s.Send("t", "error", lateError)
	s.Send("t", "error", `{"type":"RUN_ERROR","message":"another"}`)
	s.Send("t", "proxy", started("proxy"))
	s.Send("t", "proxy", strings.Replace(finished("proxy"), "}", `,"outcome":{"type":"cancelled"}}`, 1), says(record.HeaderSynthetic, "true")...)
	s.Send("t", "proxy", lateError)
	s.Send("t", "done", started("done"))
	s.Send("t", "done", finished("done"))
	s.Send("t", "done", lateError, says(record.HeaderSynthetic, "true")...)
	s.open(false)
	s.feed(len(s.Events))
	equal(t, "counted", s.part.counts.Outcomes[fold.SecondTerminal], 3)
	s.commit(true)
	for id, want := range map[string]record.Status{
		"error": record.StatusError, "proxy": record.StatusCancelled, "done": record.StatusFinished,
	} {
		equal(t, id, []any{s.run(id).Status, s.run(id).LateError == nil, s.recordsOf(id)}, []any{want, true, 1})
	}
	s.proves()
}

// A record at its limit keeps its contents, as later runs build on them: only the error is cut.
func TestPartition_CutsALateErrorThatIsTooLarge(t *testing.T) {
	s := newSim(t, func(c *Config) { c.RecordLimit = 64 << 10 })
	s.Send("t", "r", started("r"))
	for range 6 {
		s.Send("t", "r", text("m", strings.Repeat("x", 10<<10)))
	}
	s.Send("t", "r", finished("r"))
	s.all()
	before := s.run("r")
	s.Send("t", "r", `{"type":"RUN_ERROR","message":"`+strings.Repeat("é", 20<<10)+`","code":"FLUSH","Message":1}`)
	s.all()
	r := s.run("r")
	equal(t, "messages", r.Messages, before.Messages)
	equal(t, "truncated", r.Truncated, false)
	event := string(r.LateError.Event)
	for _, part := range []string{`"type":"RUN_ERROR"`, `"code":"FLUSH"`, `"message":"ééé`, `"skeinTruncated":{"bytes":410`} {
		if !strings.Contains(event, part) || len(event) > 2<<10 {
			t.Errorf("%d bytes without %s: %s", len(event), part, event)
		}
	}
	s.proves()
}

func isLate(m *kgo.Record) bool { return string(m.Value) == lateError }

// recordsOf returns how many records a run had.
func (s *sim) recordsOf(run string) (n int) {
	for _, m := range s.runs {
		if strings.HasSuffix(string(m.Key), "/"+run) {
			n++
		}
	}
	return n
}

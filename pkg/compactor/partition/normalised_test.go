package partition

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// startedWith is a RUN_STARTED with an input that holds nothing but messages; parent is empty where none is named.
func startedWith(run, parent, messages string) string {
	if parent != "" {
		parent = fmt.Sprintf(`"parentRunId":%q,`, parent)
	}
	return fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t",%s"runId":%q,"input":{"messages":%s}}`, parent, run, messages)
}

// answer sends a run that says one message.
func (s *sim) answer(run, started string) {
	s.tb.Helper()
	s.Send("t", run, started)
	s.Send("t", run, text("a-"+run, "answer"))
	s.Send("t", run, finished(run))
}

// ids are those of a run's history, with the contents of what Skein has named.
func (s *sim) ids(run string) string {
	s.tb.Helper()
	var messages []struct {
		ID      string
		Content any
	}
	text, _ := s.history(run)
	s.check(json.Unmarshal([]byte(text), &messages))
	var out []string
	for _, m := range messages {
		if m.ID == "" || strings.HasPrefix(m.ID, "message-") {
			m.ID += fmt.Sprint("=", m.Content)
		}
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

// The rule of the design, "Whole or normalised", case by case; the first are the examples of AG-UI's page on serialisation.
func TestNormalised_HistoryIsTheParentsWithTheInputBehind(t *testing.T) {
	hello, again := `[{"id":"msg1","role":"user","content":"Hello"}]`, `[{"id":"msg2","role":"user","content":"How are you?"}]`
	u := func(ids ...string) string {
		var list []string
		for _, id := range ids {
			if strings.HasPrefix(id, "a-") {
				list = append(list, assistantMessage(id, "answer"))
			} else {
				list = append(list, userMessage(id, "said"))
			}
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	three := func(s *sim) {
		s.answer("run1", startedWith("run1", "", u("u1")))
		s.answer("run2", startedWith("run2", "", u("u2")))
		s.answer("run3", startedWith("run3", "", u("u3")))
	}
	for name, c := range map[string]struct {
		send func(*sim)
		// want is by run: its history, how its parent was found, and the form of its input.
		want map[string]string
	}{
		"the first run whole, the second without what is there": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", hello))
			s.answer("run2", startedWith("run2", "", again))
		}, map[string]string{"run1": "msg1 a-run1; none", "run2": "msg1 a-run1 msg2 a-run2; latest run1 normalised"}},
		"the same, with the parent named": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", hello))
			s.answer("run2", startedWith("run2", "run1", again))
		}, map[string]string{"run2": "msg1 a-run1 msg2 a-run2; explicit run1 normalised"}},
		"a branch of bare strings": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", `["Tell me about Paris"]`))
			s.answer("run2", startedWith("run2", "run1", `["Actually, tell me about London instead"]`))
		}, map[string]string{
			"run1": "message-run1~1=Tell me about Paris a-run1; none",
			"run2": "message-run1~1=Tell me about Paris a-run1 message-run2~1=Actually, tell me about London instead a-run2; explicit run1 normalised",
		}},
		"bare strings without a parent": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", `["one"]`))
			s.answer("run2", startedWith("run2", "", `["two"]`))
		}, map[string]string{"run2": "message-run1~1=one a-run1 message-run2~1=two a-run2; latest run1 normalised"}},
		"an id used again, of bare strings": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", `["one"]`))
			s.answer("run1", startedWith("run1", "", `["two"]`))
		}, map[string]string{"run1~2": "message-run1~1=one a-run1 message-run1~2~1=two; latest run1 normalised"}},
		"an empty list": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "", `[]`))
			s.answer("run3", startedWith("run3", "run1", `[]`))
		}, map[string]string{"run2": "u1 a-run1 a-run2; latest run1 normalised", "run3": "u1 a-run1 a-run3; explicit run1 normalised"}},
		"no list at all": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", `{"type":"RUN_STARTED","threadId":"t","runId":"run2","input":{"state":{"a":1}}}`)
		}, map[string]string{"run2": "u1 a-run1 a-run2; latest run1 normalised"}},
		"a sibling branch from the first of three": {func(s *sim) {
			three(s)
			s.answer("run4", startedWith("run4", "run1", u("u4")))
		}, map[string]string{"run3": "u1 a-run1 u2 a-run2 u3 a-run3; latest run2 normalised",
			"run4": "u1 a-run1 u4 a-run4; explicit run1 normalised"}},
		"regeneration by a whole list": {func(s *sim) {
			three(s)
			s.answer("run4", startedWith("run4", "", u("u1", "a-run1", "u2")))
			s.answer("run5", startedWith("run5", "run2", u("u1", "a-run1", "u2")))
		}, map[string]string{"run4": "u1 a-run1 u2 a-run4; content run1", "run5": "u1 a-run1 u2 a-run5; explicit run2"}},
		"an edit by a whole list": {func(s *sim) {
			three(s)
			s.answer("run4", startedWith("run4", "run3", `[`+userMessage("u1", "edited")+`]`))
			s.answer("run5", startedWith("run5", "", `[`+userMessage("u1", "edited")+`,`+userMessage("u5", "said")+`]`))
		}, map[string]string{"run4": "u1 a-run4; explicit run3", "run5": "u1 u5 a-run5; none"}},
		"a parent that is open": {func(s *sim) {
			s.Send("t", "run1", startedWith("run1", "", u("u1")))
			s.Send("t", "run1", text("a-run1", "answer"))
			s.answer("run2", startedWith("run2", "run1", u("u2")))
			s.Send("t", "run1", text("late", "answer"))
			s.Send("t", "run1", finished("run1"))
			s.answer("run3", startedWith("run3", "run1", u("a-run1", "u3")))
		}, map[string]string{"run1": "u1 a-run1 late; none", "run2": "u1 a-run1 u2 a-run2; explicit run1 normalised",
			"run3": "a-run1 u3 a-run3; explicit run1"}},
		"a parent of another thread": {func(s *sim) {
			s.Send("other", "run1", strings.Replace(startedWith("run1", "", u("u1")), `"t"`, `"other"`, 1))
			s.Send("other", "run1", finished("run1"))
			s.answer("run0", startedWith("run0", "", u("u0")))
			s.answer("run2", startedWith("run2", "run1", u("u2")))
		}, map[string]string{"run2": "u2 a-run2; none"}},
		"an unknown parent": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "nobody", u("u2")))
		}, map[string]string{"run2": "u2 a-run2; none"}},
		"itself as parent": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "run2", u("u2")))
		}, map[string]string{"run2": "u1 a-run1 u2 a-run2; latest run1 normalised"}},
		"the thread's first run": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
		}, map[string]string{"run1": "u1 a-run1; none"}},
		"an id that only a sibling has, with the parent named": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "run1", u("u2")))
			s.answer("run3", startedWith("run3", "run1", u("u2")))
		}, map[string]string{"run3": "u1 a-run1 u2 a-run3; explicit run1 normalised"}},
		"an id that only a sibling has, without a parent": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "run1", u("u2")))
			s.answer("run3", startedWith("run3", "run1", u("u3")))
			s.answer("run4", startedWith("run4", "", u("u2")))
		}, map[string]string{"run4": "u2 a-run4; none"}},
		"an id of a run that is open, without a parent": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.Send("t", "run2", startedWith("run2", "run1", u("u2")))
			s.answer("run3", startedWith("run3", "", u("u2")))
			s.Send("t", "run2", finished("run2"))
		}, map[string]string{"run3": "u2 a-run3; none"}},
		"an id that stood in a run and was taken out of it": {func(s *sim) {
			s.Send("t", "run1", startedWith("run1", "", u("u1")))
			s.Send("t", "run1", `{"type":"MESSAGES_SNAPSHOT","messages":`+u("u9")+`}`)
			s.Send("t", "run1", finished("run1"))
			s.answer("run2", startedWith("run2", "", u("u1")))
		}, map[string]string{"run2": "u9 u1 a-run2; latest run1 normalised"}},
		"the input beside the stream is whole": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.Input("t", "run2", `{"parentRunId":"run1","messages":`+u("u2")+`}`)
			s.answer("run2", startedWith("run2", "run1", u("u2")))
			s.Input("t", "run3", `{"messages":[]}`)
			s.answer("run3", started("run3"))
		}, map[string]string{"run2": "u2 a-run2; explicit run1", "run3": "a-run3; none"}},
		"one id twice in the list": {func(s *sim) {
			s.answer("run1", startedWith("run1", "", u("u1")))
			s.answer("run2", startedWith("run2", "", u("u2", "u2")))
		}, map[string]string{"run2": "u1 a-run1 u2 a-run2; latest run1 normalised"}},
		"activities stay": {func(s *sim) {
			s.Send("t", "run1", startedWith("run1", "", u("u1")))
			s.Send("t", "run1", `{"type":"ACTIVITY_SNAPSHOT","messageId":"plan","activityType":"plan","content":{}}`)
			s.Send("t", "run1", finished("run1"))
			s.answer("run2", startedWith("run2", "", u("u2")))
		}, map[string]string{"run2": "u1 plan u2 a-run2; latest run1 normalised"}},
	} {
		t.Run(name, func(t *testing.T) {
			checkThread(t, c.send, c.want)
		})
	}
}

// checkThread checks the history of runs, how their parents were found, and the form of their inputs.
func checkThread(t *testing.T, send func(*sim), want map[string]string) {
	t.Helper()
	whole := newSim(t, nil)
	send(whole)
	whole.all()
	// One by one, and dying between any two: what is asked of the thread is in memory, uncommitted, or on disk.
	for round, died := range []bool{false, false, true} {
		s := whole
		if round > 0 {
			s = newSim(t, nil)
			send(s)
			s.open(false)
			for s.read < len(s.Events) {
				s.feed(1)
				s.commit(true)
				if died {
					s.Now = s.Now.Add(s.cfg.CheckpointMax)
					s.commit(true)
					s.open(s.read%2 == 0)
				}
			}
		}
		for run, want := range want {
			r := s.run(run)
			got := s.ids(run) + "; " + string(r.ParentBy)
			if r.ParentRunID != "" {
				got += " " + r.ParentRunID
			}
			if r.InputForm != "" {
				got += " " + string(r.InputForm)
			}
			if got != want {
				t.Errorf("round %d, %s: %s, want %s", round, run, got, want)
			}
			if wholeInput := r.InputForm != record.InputNormalised && r.Input != nil; r.HasWholeInput() != wholeInput {
				t.Errorf("%s: HasWholeInput is %t", run, r.HasWholeInput())
			}
		}
	}
}

package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/record"
)

// says makes headers of names and values in turn.
func says(parts ...string) (hs []kgo.RecordHeader) {
	for i := 0; i < len(parts); i += 2 {
		hs = append(hs, kgo.RecordHeader{Key: parts[i], Value: []byte(parts[i+1])})
	}
	return hs
}

// proves demands that every record of the partition is proved.
func (s *sim) proves() {
	s.tb.Helper()
	var n tally
	s.isProved(rand.New(rand.NewPCG(1, 1)), &n)
	if n.unproved > 0 || n.places == 0 {
		s.tb.Errorf("proofs: %+v", n)
	}
}

func TestPartition_RecordsSayWhoProducedTheRun(t *testing.T) {
	s := newSim(t, nil)
	in := s.Input("t", "r", `{"threadId":"t","runId":"r","messages":[],"state":{},"tools":[],"context":[]}`)
	in.Headers = append(in.Headers, says("label-user", "7", "label-env", "test", "traceparent", "none")...)
	s.Send("t", "r", started("r"), says("agent", "shop", "label-user", "8", "traceparent", traceparent)...)
	s.Send("t", "r", `{"type":`, says("label-bad", "event")...)
	s.Send("t", "r", text("m", "x"), says("agent", "another", "label-user", "9", "label-b", "1", "traceparent", otherTrace)...)
	s.Send("t", "r", finished("r"), says("label-end", "")...)
	s.Send("t", "r", custom("behind the end"), says("label-late", "x")...)
	s.Turn("plain", "m2")
	s.all()
	r := s.run("r")
	equal(t, "agent", r.Agent, "shop")
	equal(t, "trace", []string{r.Traceparent, r.TraceID()}, []string{traceparent, "4bf92f3577b34da6a3ce929d0e0e4736"})
	equal(t, "labels", r.Labels, map[string]string{"user": "7", "env": "test", "bad": "event", "b": "1", "end": ""})
	plain := s.run("plain")
	equal(t, "of a run that nobody is named for", []any{plain.Agent, plain.Labels, plain.Traceparent}, []any{"", map[string]string(nil), ""})
	s.proves()
}

const (
	traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	otherTrace  = "00-11111111111111111111111111111111-2222222222222222-01"
)

// What tells of a run's end names its parent's trace, whether the parent is in memory, open, or in the store alone.
func TestPartition_TellsOfEndsWithTheTraceOfTheParent(t *testing.T) {
	s := newSim(t, func(c *Config) { c.TellEnded = true })
	trace := says("traceparent", traceparent)
	s.Send("t", "parent", started("parent"), trace...)
	s.Send("t", "parent", finished("parent"))
	s.all()
	s.open(false)
	for _, run := range []string{"a", "b"} {
		s.Send("t", run, started(run), says("traceparent", otherTrace)...)
		s.Send("t", run, finished(run))
	}
	s.Send("t", "open", started("open"), trace...)
	s.Send("t", "spawned", `{"type":"RUN_STARTED","threadId":"t","runId":"spawned","parentRunId":"open"}`)
	s.Send("t", "spawned", finished("spawned"))
	s.feed(len(s.Events))
	told := func() (all []string) {
		for _, o := range s.part.outputs {
			if o.Ended != nil {
				all = append(all, fmt.Sprint(o.Ended.RunID, " ", o.Ended.Status, " of ", o.Ended.ParentRunID, " ", o.ParentTraceparent))
			}
		}
		return all
	}
	equal(t, "told", told(), []string{"a finished of parent " + traceparent, "b finished of a " + otherTrace,
		"spawned finished of open " + traceparent})
	plain := newSim(t, nil)
	plain.Turn("r", "m")
	plain.open(false)
	plain.feed(len(plain.Events))
	equal(t, "told unless it is wanted", slices.ContainsFunc(plain.part.outputs, func(o Output) bool { return o.Ended != nil }), false)
}

// An end that the proxy wrote ends the run like one of the agent, but is in none of its counts, nor in its hash.
func TestPartition_AnEndOfTheProxyIsSynthetic(t *testing.T) {
	cancelled := `{"type":"RUN_FINISHED","threadId":"t","runId":"r","outcome":{"type":"cancelled"}}`
	for name, c := range map[string]struct {
		end    string
		status record.Status
	}{
		"cancelled": {cancelled, record.StatusCancelled},
		"an error":  {`{"type":"RUN_ERROR","message":"the agent is gone"}`, record.StatusError},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, nil)
			s.Send("t", "r", started("r"), seq(0))
			s.Send("t", "r", `{"type":"TEXT_MESSAGE_START","messageId":"m"}`, seq(1))
			s.Send("t", "r", `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"half"}`, seq(2))
			s.Now = s.Now.Add(3 * time.Second)
			s.Send("t", "r", c.end, seq(3), says(record.HeaderSynthetic, "true")[0])
			s.Send("t", "r", finished("r"), seq(4)) // the agent's own end comes too late
			s.all()
			r := s.run("r")
			equal(t, "status", []any{r.Status, r.Synthetic, string(r.Terminal)}, []any{c.status, true, c.end})
			equal(t, "anomalies", r.Stats.Anomalies, map[string]int64(nil))
			equal(t, "counts", []any{r.Raw.Events, r.Stats.Events["RUN_FINISHED"] + r.Stats.Events["RUN_ERROR"], r.Raw.NextSeq, r.Raw.Next},
				[]any{int64(3), int64(0), int64(4), int64(4)})
			equal(t, "duration", *r.Stats.Duration, int64(3000))
			equal(t, "open", r.Open == nil, true)
			equal(t, "dead letters", s.letters(), []string{})
			h := s.part.threads["acme/t"].Get("r")
			equal(t, "head", []any{h.Sealed, h.Synthetic, h.End}, []any{true, true, int64(3)})
			s.proves()
		})
	}
}

func TestPartition_TheProxyEndsARunWithoutAnEventOfTheAgent(t *testing.T) {
	s := newSim(t, nil)
	s.Input("t", "r", `{"threadId":"t","runId":"r","messages":[`+userMessage("u", "hi")+`],"state":{},"tools":[],"context":[]}`)
	s.Send("t", "r", `{"type":"RUN_ERROR","message":"the agent does not answer"}`, seq(0), says(record.HeaderSynthetic, "true")[0])
	s.Send("t", "r2", started("r2"))
	s.Send("t", "r2", finished("r2"))
	s.all()
	r := s.run("r")
	equal(t, "status", []any{r.Status, r.Synthetic, r.Raw.Events, r.InputOnly()}, []any{record.StatusError, true, int64(0), false})
	messages, _ := s.history("r")
	equal(t, "history", messages, `[`+userMessage("u", "hi")+`]`)
	equal(t, "parent of the next", s.run("r2").ParentRunID, "r")
	s.proves()
}

// A run of which the proxy left something out says so, whatever the record is that tells.
func TestPartition_ARunThatTheProxyLeftEventsOutOfIsIncomplete(t *testing.T) {
	s := newSim(t, nil)
	s.Send("t", "r", started("r"), seq(0))
	s.Send("t", "r", text("m", "x"), seq(4), says(record.HeaderIncomplete, "3")[0])
	s.Send("t", "r", `{"type":`, seq(6), says(record.HeaderIncomplete, "1")[0])
	s.Send("t", "r", text("n", "x"), seq(7), says(record.HeaderIncomplete, "none")[0])
	s.Send("t", "r", `{"type":"RUN_ERROR","message":"gone"}`, seq(9), says(record.HeaderSynthetic, "true")[0], says(record.HeaderIncomplete, "1")[0])
	s.Turn("plain", "m2")
	s.all()
	equal(t, "incomplete", []int64{s.run("r").Stats.Anomalies["incomplete"], s.run("plain").Stats.Anomalies["incomplete"]}, []int64{3, 0})
	s.proves()
}

package demo

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
)

func TestConversations_AreConsistent(t *testing.T) {
	now := time.Now()
	all, err := Conversations(now)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 4 || all[len(all)-1].ThreadID != Branched {
		t.Errorf("%d conversations, want 4, the branched one last", len(all))
	}
	for _, c := range all {
		times := now.Add(-3 * time.Hour).UnixMilli()
		for _, r := range c.Runs {
			in, err := agui.DecodeInput(r.Input, "")
			if err != nil {
				t.Fatalf("%s %s: %v", c.ThreadID, r.ID, err)
			}
			if in.ThreadID != c.ThreadID || in.RunID != r.ID || c.ThreadID == Branched && in.ParentRunID != "" {
				t.Errorf("%s %s: the input is of %s %s, parent %q", c.ThreadID, r.ID, in.ThreadID, in.RunID, in.ParentRunID)
			}
			run := compact.New(in.Messages, in.State)
			for i, e := range r.Events {
				ev, err := agui.Decode(e)
				if err != nil {
					t.Fatalf("%s %s: %s: %v", c.ThreadID, r.ID, e, err)
				}
				if ev.ThreadID != "" && (ev.ThreadID != c.ThreadID || ev.RunID != r.ID) {
					t.Errorf("%s %s: event is of %s %s", c.ThreadID, r.ID, ev.ThreadID, ev.RunID)
				}
				if ends := ev.Type == agui.RunFinished || ev.Type == agui.RunError; ends != (i == len(r.Events)-1) ||
					(ev.Type == agui.RunStarted) != (i == 0) {
					t.Errorf("%s %s: event %d is %s", c.ThreadID, r.ID, i, ev.Type)
				}
				var at struct{ Timestamp int64 }
				if err := json.Unmarshal(e, &at); err != nil || at.Timestamp <= times {
					t.Errorf("%s %s: event %d is at %d, behind %d (%v)", c.ThreadID, r.ID, i, at.Timestamp, times, err)
				}
				times = at.Timestamp
				before := string(run.State())
				if err := run.Apply(ev); err != nil {
					t.Errorf("%s %s: event %d: %v", c.ThreadID, r.ID, i, err)
				}
				if (ev.Type == agui.StateSnapshot || ev.Type == agui.StateDelta) && string(run.State()) == before {
					t.Errorf("%s %s: event %d changes nothing of the state %s", c.ThreadID, r.ID, i, before)
				}
			}
		}
		if last := c.ThreadID == Branched; times > now.UnixMilli() || last && times != now.UnixMilli() {
			t.Errorf("%s ends at %v, of now %v", c.ThreadID, time.UnixMilli(times), now)
		}
	}
}

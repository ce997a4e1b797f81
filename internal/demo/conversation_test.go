package demo

import (
	"encoding/json"
	"strings"
	"testing"
)

type input struct {
	ThreadID    string
	RunID       string
	ParentRunID *string
	Messages    []struct{ ID, Role string }
}

func TestConversations_AreConsistent(t *testing.T) {
	all, err := Conversations()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 49 {
		t.Errorf("%d conversations, want 46 recordings and 3 with branches", len(all))
	}
	threads := map[string]bool{}
	for _, c := range all {
		if threads[c.ThreadID] {
			t.Errorf("thread %s is there twice", c.ThreadID)
		}
		threads[c.ThreadID] = true
		runs := map[string]bool{}
		for _, r := range c.Runs {
			if runs[r.ID] {
				t.Errorf("%s: run %s is there twice", c.ThreadID, r.ID)
			}
			runs[r.ID] = true
			var in input
			if err := json.Unmarshal(r.Input, &in); err != nil {
				t.Fatalf("%s %s: %v", c.ThreadID, r.ID, err)
			}
			if in.ThreadID != c.ThreadID || in.RunID != r.ID {
				t.Errorf("%s %s: input is of %s %s", c.ThreadID, r.ID, in.ThreadID, in.RunID)
			}
			if c.Branched && in.ParentRunID != nil {
				t.Errorf("%s %s: names its parent %s", c.ThreadID, r.ID, *in.ParentRunID)
			}
			for _, e := range r.Events {
				var ev struct{ Type, ThreadID, RunID string }
				if err := json.Unmarshal(e, &ev); err != nil || ev.Type == "" {
					t.Fatalf("%s %s: no event: %s", c.ThreadID, r.ID, e)
				}
				if ev.ThreadID != "" && (ev.ThreadID != c.ThreadID || ev.RunID != r.ID) {
					t.Errorf("%s %s: event is of %s %s", c.ThreadID, r.ID, ev.ThreadID, ev.RunID)
				}
			}
		}
	}
}

// The prefix of messages that a branched run shares with the thread is what names its parent, so
// it must be exactly the part before the detour.
func TestConversations_DetoursBranchWhereTheyShould(t *testing.T) {
	all, err := Conversations()
	if err != nil {
		t.Fatal(err)
	}
	shared := map[string]int{"demo-edit": 2, "demo-regenerate": 5, "demo-fork": 2}
	for _, c := range all[:3] {
		var recorded, first input
		n := 3 // the recorded runs
		if err := json.Unmarshal(c.Runs[n-1].Input, &recorded); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(c.Runs[n].Input, &first); err != nil {
			t.Fatal(err)
		}
		common := 0
		for common < len(first.Messages) && common < len(recorded.Messages) && first.Messages[common].ID == recorded.Messages[common].ID {
			common++
		}
		if common != shared[c.ThreadID] {
			t.Errorf("%s: the detour shares %d messages with the recording, want %d", c.ThreadID, common, shared[c.ThreadID])
		}
		before := map[string]bool{}
		for _, r := range c.Runs[:n] {
			for _, e := range r.Events {
				for _, id := range idsIn(e) {
					before[id] = true
				}
			}
		}
		for _, e := range c.Runs[n].Events {
			if strings.Contains(string(e), "TEXT_MESSAGE_START") && before[idsIn(e)[0]] {
				t.Errorf("%s: the detour's answer has an id of before: %s", c.ThreadID, e)
			}
		}
	}
}

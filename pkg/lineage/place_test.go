package lineage

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// conversationThread is a thread of three turns, of which t2 was asked again with other words (t2b):
//
//	t1 (10..19) ─ t2 (20..29) ─ t3 (30..39)
//	            └ t2b (40..49)
func conversationThread(t *testing.T) *Thread {
	t.Helper()
	th, err := NewThread()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		id, parent, branch, history string
		start                       int64
		depth                       int
	}{
		{"t1", "", "t1", "u1 a1", 10, 0},
		{"t2", "t1", "t1", "u1 a1 u2 @x a2", 20, 1},
		{"t3", "t2", "t1", "u1 a1 u2 @x a2 u3 a3", 30, 2},
		{"t2b", "t1", "t2b", "u1 a1 u2b a2b", 40, 1},
	} {
		err := th.Add(Run{ID: r.id, Parent: r.parent, Branch: r.branch, Root: "t1", Depth: r.depth,
			Start: r.start, End: r.start + 9, Sealed: true, HistoryKey: KeyOf(msgs(r.history))})
		if err != nil {
			t.Fatal(err)
		}
	}
	return th
}

func TestThread_Place(t *testing.T) {
	tests := map[string]struct {
		start Start
		more  func(*testing.T, *Thread)
		want  Placement
	}{
		"the next turn continues its branch": {
			start: Start{Input: inputOf("u1 a1 u2 a2 u3 a3 u4")},
			want:  Placement{Run: Run{Parent: "t3", ParentBy: ParentContent, Branch: "t1", Root: "t1", Depth: 3, Base: "t3"}},
		},
		"an edited message is a branch at the turn before it": {
			start: Start{Input: inputOf("u1 a1 u2 a2 u3b")},
			want:  Placement{Run: Run{Parent: "t2", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 2, Base: "t2"}},
		},
		"a regeneration is a branch beside the run that it repeats": {
			start: Start{Input: inputOf("u1 a1 u2 a2 u3")},
			want:  Placement{Run: Run{Parent: "t2", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 2, Base: "t2"}},
		},
		"activity messages in the input are passed over": {
			start: Start{Input: inputOf("u1 @y a1 u2 a2 u3b @z")},
			want:  Placement{Run: Run{Parent: "t2", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 2, Base: "t2"}},
		},
		"the first message edited is another root": {
			start: Start{Input: inputOf("u1b")},
			want:  Placement{Run: Run{ParentBy: ParentNone, Branch: "new", Root: "new"}},
		},
		"an input without messages is a root": {
			start: Start{Input: inputOf("")},
			want:  Placement{Run: Run{ParentBy: ParentNone, Branch: "new", Root: "new"}},
		},
		"a run with an empty history is nobody's parent": {
			start: Start{Input: inputOf("u9")},
			more:  sealed(Run{ID: "empty", Start: 50, End: 51}, ""),
			want:  Placement{Run: Run{ParentBy: ParentNone, Branch: "new", Root: "new"}},
		},
		"of an ended run and a later live one that say the same, the latter counts for messages without ids": {
			start: Start{Input: &agui.RunAgentInput{Messages: slices.Concat(unnamedMsgs("w"), msgs("u1"))}},
			more: func(t *testing.T, th *Thread) {
				t.Helper()
				sealed(Run{ID: "ended", Branch: "ended", Root: "ended", Start: 50, End: 51}, "u8:w")(t, th)
				live(Run{ID: "live", Branch: "live", Root: "live", Start: 60, End: -1}, "u9:w")(t, th)
			},
			want: Placement{Run: Run{Parent: "live", ParentBy: ParentContent, Branch: "live", Root: "live", Depth: 1}},
		},
		"of equal histories the latest start counts": {
			start: Start{Input: inputOf("u1 a1 u2 a2 u3")},
			more:  sealed(Run{ID: "again", Branch: "again", Root: "t1", Depth: 2, Parent: "t1", Start: 50, End: 59}, "u1 a1 u2 a2"),
			want:  Placement{Run: Run{Parent: "again", ParentBy: ParentContent, Branch: "again", Root: "t1", Depth: 3, Base: "again"}},
		},
		"without an input it is the run that ended last": {
			want: Placement{Run: Run{Parent: "t2b", ParentBy: ParentLatest, Branch: "t2b", Root: "t1", Depth: 2, Base: "t2b"}},
		},
		"the run that ended last is not the one that started last": {
			more: sealed(Run{ID: "long", Branch: "long", Root: "long", Start: 5, End: 55}, "u0"),
			want: Placement{Run: Run{Parent: "long", ParentBy: ParentLatest, Branch: "long", Root: "long", Depth: 1, Base: "long"}},
		},
		"a given parent of the thread is the parent": {
			start: Start{ParentRunID: "t1", Input: inputOf("u1 a1 u2 a2 u3 a3 u4")},
			want:  Placement{Run: Run{Parent: "t1", ParentBy: ParentExplicit, Branch: "new", Root: "t1", Depth: 1, Base: "t1"}},
		},
		"an unknown parent makes a root and is kept": {
			start: Start{ParentRunID: "elsewhere", Input: inputOf("u1 a1 u2")},
			want:  Placement{Run: Run{ParentBy: ParentNone, SpawnedBy: "elsewhere", Branch: "new", Root: "new"}},
		},
		"a parent that starts at the same position or later is unknown": {
			start: Start{ParentRunID: "late"},
			more:  sealed(Run{ID: "late", Start: 100, End: 120}, "u1"),
			want:  Placement{Run: Run{ParentBy: ParentNone, SpawnedBy: "late", Branch: "new", Root: "new"}},
		},
		"itself as parent counts as none": {
			start: Start{ParentRunID: "new", Input: inputOf("u1 a1 u2b a2b u3")},
			want: Placement{Anomalies: []string{AnomalySelfParent},
				Run: Run{Parent: "t2b", ParentBy: ParentContent, Branch: "t2b", Root: "t1", Depth: 2, Base: "t2b"}},
		},
		"itself by the client run id": {
			start: Start{RunID: "t3~2", ClientID: "t3", ParentRunID: "t3", Input: inputOf("u9")},
			want:  Placement{Anomalies: []string{AnomalySelfParent}, Run: Run{ParentBy: ParentNone, Branch: "t3~2", Root: "t3~2"}},
		},
		"parents that name one another": {
			start: Start{ParentRunID: "child"},
			more:  sealed(Run{ID: "child", SpawnedBy: "new", Branch: "child", Root: "child", Start: 50, End: 59}, "u1"),
			want: Placement{Anomalies: []string{AnomalyParentCycle},
				Run: Run{Parent: "child", ParentBy: ParentExplicit, Branch: "child", Root: "child", Depth: 1, Base: "child"}},
		},
		"parents that name one another over a third": {
			start: Start{ParentRunID: "child"},
			more: func(t *testing.T, th *Thread) {
				sealed(Run{ID: "child", SpawnedBy: "third", Branch: "child", Root: "child", Start: 50, End: 59}, "u1")(t, th)
				sealed(Run{ID: "third", SpawnedBy: "new", Branch: "third", Root: "third", Start: 60, End: 69}, "u2")(t, th)
			},
			want: Placement{Anomalies: []string{AnomalyParentCycle},
				Run: Run{Parent: "child", ParentBy: ParentExplicit, Branch: "child", Root: "child", Depth: 1, Base: "child"}},
		},
		"an id used again stands for its latest run": {
			start: Start{ParentRunID: "t2"},
			more:  sealed(Run{ID: "t2~2", ClientID: "t2", Branch: "t2~2", Root: "t2~2", Start: 50, End: 59}, "u1"),
			want:  Placement{Run: Run{Parent: "t2~2", ParentBy: ParentExplicit, Branch: "t2~2", Root: "t2~2", Depth: 1, Base: "t2~2"}},
		},
		"our own id of such a run is understood": {
			start: Start{ParentRunID: "t2~2"},
			more: func(t *testing.T, th *Thread) {
				sealed(Run{ID: "t2~2", ClientID: "t2", Branch: "t2~2", Root: "t2~2", Start: 50, End: 59}, "u1")(t, th)
				sealed(Run{ID: "t2~3", ClientID: "t2", Branch: "t2~3", Root: "t2~3", Start: 60, End: 69}, "u1")(t, th)
			},
			want: Placement{Run: Run{Parent: "t2~2", ParentBy: ParentExplicit, Branch: "t2~2", Root: "t2~2", Depth: 1, Base: "t2~2"}},
		},
		"an open parent counts as it stands and is no base": {
			start: Start{Input: inputOf("u1 a1 u2b a2b u3 a3-half u4")},
			more:  live(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b @y u3 a3-half"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentContent, Branch: "t2b", Root: "t1", Depth: 3}},
		},
		"an open run whose history went past the input is not its parent": {
			start: Start{Input: inputOf("u1 a1 u2b a2b u3")},
			more:  live(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b u3 a3-half"),
			want:  Placement{Run: Run{Parent: "t2b", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 2, Base: "t2b"}},
		},
		"a resume names the run that it answers, whatever the messages": {
			start: Start{Input: resuming("u1 a1 u2 a2 u3 a3 u4", "i1")},
			more: sealed(Run{ID: "asks", Branch: "asks", Root: "t1", Parent: "t1", Depth: 1, Start: 50, End: 59,
				Interrupts: agui.Strings{"i0", "i1"}}, "u1 a1 u5"),
			want: Placement{Run: Run{Parent: "asks", ParentBy: ParentContent, Branch: "asks", Root: "t1", Depth: 2, Base: "asks"}},
		},
		"an answered interrupt names none": {
			start: Start{Input: resuming("u1 a1", "i1")},
			more: func(t *testing.T, th *Thread) {
				sealed(Run{ID: "asks", Branch: "asks", Root: "asks", Start: 50, End: 59, Interrupts: agui.Strings{"i1"}}, "u6")(t, th)
				sealed(Run{ID: "answers", Parent: "asks", Branch: "asks", Root: "asks", Depth: 1, Start: 60, End: 69}, "u6 a6")(t, th)
			},
			want: Placement{Run: Run{Parent: "t1", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 1, Base: "t1"}},
		},
		"of one interrupt id the latest run counts": {
			start: Start{Input: resuming("", "i1")},
			more: func(t *testing.T, th *Thread) {
				sealed(Run{ID: "asks", Branch: "asks", Root: "asks", Start: 50, End: 59, Interrupts: agui.Strings{"i1"}}, "u6")(t, th)
				sealed(Run{ID: "again", Parent: "asks", Branch: "asks", Root: "asks", Depth: 1, Start: 60, End: 69,
					Interrupts: agui.Strings{"i1"}}, "u6 a6")(t, th)
			},
			want: Placement{Run: Run{Parent: "again", ParentBy: ParentContent, Branch: "asks", Root: "asks", Depth: 2, Base: "again"}},
		},
		"an open run whose messages the input lacks spawned it": {
			start: Start{ParentRunID: "open", Input: inputOf("s1")},
			more:  live(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b u3 a3-half"),
			want:  Placement{Run: Run{ParentBy: ParentNone, SpawnedBy: "open", Spawned: true, Branch: "new", Root: "new"}},
		},
		"with one of its messages it is a branch": {
			start: Start{ParentRunID: "open", Input: inputOf("s1 u3")},
			more:  live(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b u3 a3-half"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentExplicit, Branch: "t2b", Root: "t1", Depth: 3}},
		},
		"an input on RUN_STARTED may leave the history out": {
			start: Start{ParentRunID: "open", Input: &agui.RunAgentInput{Messages: msgs("s1"), Serialised: true}},
			more:  live(Run{ID: "open", Branch: "open", Root: "open", Start: 50, End: -1}, "u3"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentExplicit, Branch: "open", Root: "open", Depth: 1}},
		},
		"a run that has ended spawns none": {
			start: Start{ParentRunID: "t3", Input: inputOf("s1")},
			want:  Placement{Run: Run{Parent: "t3", ParentBy: ParentExplicit, Branch: "t1", Root: "t1", Depth: 3, Base: "t3"}},
		},
		"an open run that left memory": {
			start: Start{Input: inputOf("u1 a1 u2b a2b u3 u4")},
			more:  sealed(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b u3"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentContent, Branch: "t2b", Root: "t1", Depth: 3}},
		},
		"an abandoned parent is no base": {
			more: func(t *testing.T, th *Thread) {
				add(t, th, Run{ID: "gone", Branch: "gone", Root: "gone", Start: 50, End: 60, Status: StatusAbandoned, HistoryKey: KeyOf(msgs("u7"))})
			},
			want: Placement{Run: Run{Parent: "gone", ParentBy: ParentLatest, Branch: "gone", Root: "gone", Depth: 1}},
		},
		"an input without an id spawns nothing": {
			start: Start{ParentRunID: "open", Input: inputOf("message-new~1:else")},
			more:  live(Run{ID: "open", Parent: "t2b", Branch: "t2b", Root: "t1", Depth: 2, Start: 50, End: -1}, "u1 a1 u2b a2b u3 a3-half"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentExplicit, Branch: "t2b", Root: "t1", Depth: 3}},
		},
		"an open run, by what its messages say": {
			start: Start{Input: inputOf("message-new~1:hi message-new~2:more message-new~3:and")},
			more:  live(Run{ID: "open", Branch: "open", Root: "open", Start: 50, End: -1}, "message-open~1:hi u3:more"),
			want:  Placement{Run: Run{Parent: "open", ParentBy: ParentContent, Branch: "open", Root: "open", Depth: 1}},
		},
		"what ended later was open at the position": {
			start: Start{ParentRunID: "t3", Offset: 35},
			want:  Placement{Run: Run{Parent: "t3", ParentBy: ParentExplicit, Branch: "t1", Root: "t1", Depth: 3}},
		},
		"what came later does not count": {
			start: Start{Offset: 25, Input: inputOf("u1 a1 u2b a2b u3")},
			want:  Placement{Run: Run{Parent: "t1", ParentBy: ParentContent, Branch: "new", Root: "t1", Depth: 1, Base: "t1"}},
		},
		"a child that came later does not take the branch": {
			start: Start{Offset: 15, ParentRunID: "t1"},
			want:  Placement{Run: Run{Parent: "t1", ParentBy: ParentExplicit, Branch: "t1", Root: "t1", Depth: 1}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			th := conversationThread(t)
			if tt.more != nil {
				tt.more(t, th)
			}
			if tt.start.RunID == "" {
				tt.start.RunID = "new"
			}
			if tt.start.Offset == 0 {
				tt.start.Offset = 100
			}
			tt.want.Run.ID, tt.want.Run.ClientID = tt.start.RunID, tt.start.ClientID
			tt.want.Run.Start, tt.want.Run.End, tt.want.Run.Status = tt.start.Offset, -1, StatusRunning
			tt.want.Run.HasInput = tt.start.Input != nil
			if got := placed(th, tt.start); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func resuming(words, interrupt string) *agui.RunAgentInput {
	in := inputOf(words)
	in.Resume = []json.RawMessage{json.RawMessage(`{"interruptId":"unknown"}`), json.RawMessage(fmt.Sprintf(`{"interruptId":%q}`, interrupt))}
	return in
}

func add(t *testing.T, th *Thread, r Run) {
	t.Helper()
	if err := th.Add(r); err != nil {
		t.Fatal(err)
	}
}

func sealed(r Run, history string) func(*testing.T, *Thread) {
	return func(t *testing.T, th *Thread) {
		t.Helper()
		r.Sealed, r.HistoryKey = r.End >= 0, KeyOf(msgs(history))
		add(t, th, r)
	}
}

// unnamedMsgs are a user's messages that came without ids, as they are numbered then.
func unnamedMsgs(contents string) (list []agui.Message) {
	for i, content := range strings.Fields(contents) {
		id := fmt.Sprintf("message-new~%d", i+1)
		list = append(list, agui.Message{ID: id, Role: agui.RoleUser, Raw: json.RawMessage(fmt.Sprintf(`{"id":%q,"role":"user","content":%q}`, id, content))})
	}
	return list
}

func live(r Run, history string) func(*testing.T, *Thread) {
	return func(t *testing.T, th *Thread) {
		t.Helper()
		if err := th.AddLive(&r, func() []agui.Message { return msgs(history) }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestThread_RefusesToMoveARun(t *testing.T) {
	th := conversationThread(t)
	r, _ := th.Run("t2")
	r.Parent = "t3"
	if err := th.Add(r); err == nil {
		t.Error("a run was given another parent")
	}
	if err := th.Add(Run{}); err == nil {
		t.Error("a run without an id was added")
	}
	if err := th.AddLive(&Run{ID: "x", End: 3}, nil); err == nil {
		t.Error("a run that has ended was added as live")
	}
}

func TestKey_NamesHistories(t *testing.T) {
	a := KeyOf(msgs("u1 @x a1"))
	if a.IDs != KeyOf(msgs("u1:edited a1")).IDs || a != KeyOf(msgs("u1")).Extend(msgs("@y a1")) {
		t.Error("activity messages or contents change the key")
	}
	for _, other := range []string{"", "a1 u1", "u1", "u1a1", "u1 a1 a1"} {
		if a.IDs == KeyOf(msgs(other)).IDs {
			t.Errorf("%q has the same key", other)
		}
	}
	if b := KeyOf(msgs("message-r~1:hi a1")); b != KeyOf(msgs("message-s~7:hi a1")) || b.IDs == KeyOf(msgs("message-r~1:ho a1")).IDs {
		t.Error("a message without an id is not named by what it says")
	}
	text, err := a.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	var back HistoryKey
	if err := back.UnmarshalText(text); err != nil || back != a {
		t.Errorf("text %q gives %v, %v", text, back, err)
	}
	if err := back.UnmarshalText(nil); err != nil || !back.IsZero() {
		t.Errorf("no text gives %v, %v", back, err)
	}
	for _, bad := range []string{"zz", "abcd", strings.Repeat("g", 32)} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

// branchedThread is a thread of n runs in n/10 branches: each branch parts from a random run and
// is ten turns long.
func branchedThread(tb testing.TB, n int) *Thread {
	rnd := rand.New(rand.NewPCG(1, uint64(n)))
	th, err := NewThread()
	if err != nil {
		tb.Fatal(err)
	}
	var histories [][]string
	for len(histories) < n {
		var at []string
		if len(histories) > 0 {
			at = histories[rnd.IntN(len(histories))]
			at = at[:min(len(at), 20)] // so that chains stay of one length
		}
		for range 10 {
			k := len(histories)
			at = append(slices.Clip(at), fmt.Sprint("u", k), fmt.Sprint("a", k))
			p := placed(th, Start{RunID: fmt.Sprint("r", k), Input: &agui.RunAgentInput{Messages: ids(at[:len(at)-1])}, Offset: int64(2 * k)})
			p.Run.End, p.Run.Sealed, p.Run.HistoryKey = int64(2*k+1), true, KeyOf(ids(at))
			if err := th.Add(p.Run); err != nil {
				tb.Fatal(err)
			}
			histories = append(histories, at)
		}
	}
	return th
}

func ids(list []string) []agui.Message {
	out := make([]agui.Message, len(list))
	for i, id := range list {
		out[i] = agui.Message{ID: id, Role: agui.RoleUser}
	}
	return out
}

// A client has what THINKING_* events brought under ids of its own. An input that repeats it goes on from the run all the
// same, the longest history first.
func TestThread_PlacesAnInputThatHasThinkingUnderOtherIDs(t *testing.T) {
	reasoning := func(id string) agui.Message {
		return agui.Message{ID: id, Role: agui.RoleReasoning, Raw: json.RawMessage(`{"id":"` + id + `","role":"reasoning","content":"hm"}`)}
	}
	list := func(front string, m agui.Message, back string) []agui.Message {
		return slices.Concat(msgs(front), []agui.Message{m}, msgs(back))
	}
	var runs []Run
	histories := map[string][]agui.Message{
		"short": msgs("u1"), "made": list("u1", reasoning("thinking-made-1"), "a1"), "named": list("u1", reasoning("z"), "a1"),
		"plain":    msgs("u1 a2"),
		"reasoned": list("u1", reasoning("y"), "a3"), "bare": msgs("u1 a3"),
	}
	for i, id := range []string{"short", "made", "named", "plain", "reasoned", "bare"} {
		at := int64(10 * i)
		runs = append(runs, Run{ID: id, Branch: id, Root: id, Start: at, End: at + 1, Sealed: true, HistoryKey: KeyOf(histories[id])})
	}
	for name, c := range map[string]struct {
		input []agui.Message
		want  string
	}{
		"under the client's id":     {list("u1", reasoning("5f0c"), "a1 u2"), "made"},
		"under Skein's":             {list("u1", reasoning("thinking-made-1"), "a1 u2"), "made"},
		"reasoning with its own id": {list("u1", reasoning("z"), "a1 u2"), "named"},
		"and a later run without":   {list("u1", reasoning("y"), "a3 u2"), "reasoned"},
		"none":                      {msgs("u1 a2 u2"), "plain"},
		"only that":                 {list("u1", reasoning("5f0c"), ""), "short"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, live := range []bool{false, true} {
				th, err := NewThread()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range runs {
					if live {
						r.End, r.Sealed, r.HistoryKey = -1, false, HistoryKey{}
						if err := th.AddLive(&r, func() []agui.Message { return histories[r.ID] }); err != nil {
							t.Fatal(err)
						}
					} else if err := th.Add(r); err != nil {
						t.Fatal(err)
					}
				}
				if p := placed(th, Start{RunID: "new", Input: &agui.RunAgentInput{Messages: c.input}, Offset: 100}); p.Run.Parent != c.want {
					t.Errorf("live %t: parent %q, want %q", live, p.Run.Parent, c.want)
				}
			}
		})
	}
}

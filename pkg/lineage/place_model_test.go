package lineage

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

// model is a thread told plainly: every run with its whole history, asked by looking at all of them.
type model struct {
	runs []*modelRun
	next int64
	ids  int
}

type modelRun struct {
	Run
	history []string
}

func (m *model) find(given string, offset int64) *modelRun {
	var best *modelRun
	for _, r := range m.runs {
		if r.ClientRunID() == given && r.Start < offset && (best == nil || r.Start > best.Start) {
			best = r
		}
	}
	if best == nil {
		for _, r := range m.runs {
			if r.ID == given && r.Start < offset {
				best = r
			}
		}
	}
	return best
}

// place is the design's rule, word for word, without a thought for cost.
func (m *model) place(s Start) (parent *modelRun, by ParentBy, spawnedBy string) {
	given := s.ParentRunID
	if given == s.RunID {
		given = ""
	}
	if given != "" {
		if parent = m.find(given, s.Offset); parent != nil && (s.Input == nil || len(s.Input.Messages) == 0 || parent.Sealed ||
			slices.ContainsFunc(s.Input.Messages, func(msg agui.Message) bool { return slices.Contains(parent.history, msg.ID) })) {
			return parent, ParentExplicit, ""
		}
		return nil, ParentNone, given
	}
	if s.Input == nil {
		for _, r := range m.runs {
			if r.End >= 0 && (parent == nil || r.End > parent.End) {
				parent = r
			}
		}
		if parent == nil {
			return nil, ParentNone, ""
		}
		return parent, ParentLatest, ""
	}
	var in []string
	for _, msg := range s.Input.Messages {
		in = append(in, msg.ID)
	}
	for n := len(in); n > 0; n-- {
		for _, r := range m.runs {
			if slices.Equal(r.history, in[:n]) && (parent == nil || r.Start > parent.Start) {
				parent = r
			}
		}
		if parent != nil {
			return parent, ParentContent, ""
		}
	}
	return nil, ParentNone, ""
}

// Any implements Known.
func (m *model) Any([]string, int64) (bool, error) { return false, nil }

// History implements Known.
func (m *model) History(run string) (History, error) {
	return History{Messages: ids(m.runs[slices.IndexFunc(m.runs, func(r *modelRun) bool { return r.ID == run })].history)}, nil
}

func (m *model) fresh(kind string) string {
	m.ids++
	return fmt.Sprint(kind, m.ids)
}

// part is the thread as a Thread holds it that leaves to its Loader what it may.
func (m *model) part() *Thread {
	th, err := NewThread()
	if err != nil {
		panic(err)
	}
	var last *modelRun
	for _, r := range m.runs {
		switch {
		case r.Open():
			err = th.AddLive(&r.Run, func() []agui.Message { return ids(r.history) })
		case !r.Sealed:
			err = th.Add(r.Run)
		case last == nil || r.End > last.End:
			last = r
		}
		if err != nil {
			panic(err)
		}
	}
	th.LoadFrom(&modelRest{m, th})
	th.SetKnown(m)
	if last != nil {
		if err := th.Add(last.Run); err != nil {
			panic(err)
		}
	}
	return th
}

// modelRest brings the sealed runs of a model.
type modelRest struct {
	*model
	th *Thread
}

func (r *modelRest) ByID(id string, offset int64) error {
	for _, run := range r.runs {
		if run.Sealed && (run.ID == id || run == r.find(id, offset) || run.ClientRunID() == id && run.Start >= offset) {
			if err := r.th.Add(run.Run); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *modelRest) ByKey(histories []Key, offset int64) error {
	for _, k := range histories {
		for _, run := range slices.Backward(r.runs) {
			if run.Sealed && run.End < offset && slices.Contains(run.Keys(), k) {
				return r.th.Add(run.Run)
			}
		}
	}
	return nil
}

func (r *modelRest) FirstChild(id string) (int64, bool, error) {
	for _, run := range r.runs {
		if run.Sealed && run.Parent == id {
			return run.Start, true, nil
		}
	}
	return 0, false, nil
}

// Laws: whatever happens in a thread, Place says what the plain rule says, also where most runs are left to
// the Loader; a thread that is loaded
// afterwards from heads in any order says of every run that was placed beside no other what it said
// then.
func TestThread_EqualsThePlainRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{}
		th, err := NewThread()
		if err != nil {
			t.Fatal(err)
		}
		th.SetKnown(m)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		pick := func(name string, open bool) *modelRun {
			var list []*modelRun
			for _, r := range m.runs {
				if r.Open() == open {
					list = append(list, r)
				}
			}
			if len(list) == 0 {
				return nil
			}
			return rapid.SampledFrom(list).Draw(t, name)
		}
		type decision struct {
			start Start
			got   Placement
		}
		var alone []decision

		begin := func(t *rapid.T) {
			m.next++
			s := Start{RunID: m.fresh("r"), Offset: m.next}
			history := []string{}
			if rapid.IntRange(0, 4).Draw(t, "input") > 0 {
				if len(m.runs) > 0 && rapid.IntRange(0, 5).Draw(t, "from a run") > 0 {
					history = slices.Clone(rapid.SampledFrom(m.runs).Draw(t, "of").history)
				}
				if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
					history = history[:rapid.IntRange(0, len(history)).Draw(t, "at")]
				}
				if rapid.IntRange(0, 5).Draw(t, "ask") > 0 {
					history = append(history, m.fresh("u"))
				}
				s.Input = &agui.RunAgentInput{Messages: ids(history)}
			}
			if rapid.IntRange(0, 4).Draw(t, "given") == 0 {
				s.ParentRunID = rapid.SampledFrom([]string{"r1", "r2", "r3", "r9", "elsewhere", s.RunID,
					fmt.Sprint("r", len(m.runs))}).Draw(t, "parent")
			}
			if old := m.find("r1", m.next); old != nil && !old.Open() && rapid.IntRange(0, 6).Draw(t, "again") == 0 {
				s.ClientID = "r1"
				if s.ParentRunID == "r1" {
					s.ParentRunID = ""
				}
			}
			got := placed(th, s)
			parent, by, spawnedBy := m.place(s)
			want := Run{ID: s.RunID, ClientID: s.ClientID, ParentBy: by, SpawnedBy: agui.String(spawnedBy), Branch: s.RunID, Root: s.RunID,
				HasInput: s.Input != nil, Start: s.Offset, End: -1, Status: StatusRunning}
			want.Spawned = spawnedBy != "" && m.find(spawnedBy, s.Offset) != nil
			if parent != nil {
				want.Parent, want.Root, want.Depth, want.Spawned = parent.ID, parent.Root, parent.Depth+1, parent.Spawned
				if !slices.ContainsFunc(m.runs, func(r *modelRun) bool { return r.Parent == parent.ID }) {
					want.Branch = parent.Branch
				}
				if parent.Sealed {
					want.Base = parent.ID
				}
				if s.Input == nil {
					history = slices.Clone(parent.history)
				}
			}
			if !reflect.DeepEqual(got.Run, want) {
				t.Fatalf("placing %+v\ngot  %+v\nwant %+v", s, got.Run, want)
			}
			if part := placed(m.part(), s); !reflect.DeepEqual(part, got) {
				t.Fatalf("placing %+v where the rest is asked for\ngot  %+v\nwant %+v", s, part, got)
			}
			if pick("any open", true) == nil {
				alone = append(alone, decision{s, got})
			}
			r := &modelRun{Run: got.Run, history: history}
			m.runs = append(m.runs, r)
			must(th.AddLive(&r.Run, func() []agui.Message { return ids(r.history) }))
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin":         begin,
			"begin another": begin,
			"say": func(t *rapid.T) {
				if r := pick("run", true); r != nil {
					r.history = append(r.history, m.fresh("a"))
					must(th.AddLive(&r.Run, func() []agui.Message { return ids(r.history) }))
				}
			},
			"leave memory": func(t *rapid.T) {
				if r := pick("run", true); r != nil {
					r.HistoryKey = KeyOf(ids(r.history))
					must(th.Add(r.Run))
				}
			},
			"end": func(t *rapid.T) {
				r := pick("run", true)
				if r == nil {
					return
				}
				m.next++
				r.End, r.Status, r.Sealed = m.next, StatusFinished, true
				if rapid.IntRange(0, 4).Draw(t, "abandon") == 0 {
					r.Status, r.Synthetic, r.Sealed = StatusAbandoned, true, rapid.Bool().Draw(t, "for good")
				}
				r.HistoryKey = KeyOf(ids(r.history))
				must(th.Add(r.Run))
			},
			"come back": func(t *rapid.T) {
				if r := pick("run", false); r != nil && !r.Sealed {
					r.End, r.Status, r.Synthetic = -1, StatusRunning, false
					must(th.AddLive(&r.Run, func() []agui.Message { return ids(r.history) }))
					// What was decided while it counted as ended is not decided again.
					alone = slices.DeleteFunc(alone, func(p decision) bool { return p.start.Offset > r.Start })
				}
			},
		})

		heads := make([]Run, len(m.runs))
		for i, r := range m.runs {
			r.HistoryKey = KeyOf(ids(r.history))
			heads[i] = r.Run
		}
		rand.New(rand.NewPCG(uint64(len(heads)), uint64(m.next))).Shuffle(len(heads), func(i, j int) { heads[i], heads[j] = heads[j], heads[i] })
		loaded, err := NewThread(heads...)
		must(err)
		loaded.SetKnown(m)
		for _, p := range alone {
			if again := placed(loaded, p.start); !reflect.DeepEqual(again, p.got) {
				t.Fatalf("placing %+v again\ngot  %+v\nwant %+v", p.start, again, p.got)
			}
		}
	})
}

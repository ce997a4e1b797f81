package lineage

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
)

// sample is a thread with two trees:
//
//	a ─ b ─ c ─ d
//	    │   └ c1          (a sibling of d)
//	    ├ b1 ─ b2
//	    └ b3
//	z
func sample() []Run {
	return []Run{
		{ID: "a", Branch: "a", Start: 1},
		{ID: "b", Parent: "a", Branch: "a", Start: 2},
		{ID: "c", Parent: "b", Branch: "a", Start: 3},
		{ID: "b1", Parent: "b", Branch: "b1", Start: 4},
		{ID: "d", Parent: "c", Branch: "a", Start: 5},
		{ID: "b2", Parent: "b1", Branch: "b1", Start: 6},
		{ID: "c1", Parent: "c", Branch: "c1", Start: 7},
		{ID: "z", Branch: "z", Start: 8},
		{ID: "b3", Parent: "b", Branch: "b3", Start: 9},
	}
}

func TestGraph_Questions(t *testing.T) {
	runs := sample()
	slices.Reverse(runs)
	g := NewGraph(runs)
	join := func(list []string) string { return strings.Join(list, " ") }
	for question, tt := range map[string]struct{ got, want string }{
		"ancestors":                      {join(g.Ancestors("d")), "c b a"},
		"ancestors of a root":            {join(g.Ancestors("a")), ""},
		"chain":                          {join(g.Chain("b2")), "a b b1 b2"},
		"descendants":                    {join(g.Descendants("b")), "c b1 d b2 c1 b3"},
		"descendants of a tip":           {join(g.Descendants("d")), ""},
		"siblings":                       {join(g.Siblings("b1")), "c b3"},
		"siblings of a root":             {join(g.Siblings("z")), "a"},
		"tips":                           {join(g.Tips()), "d b2 c1 z b3"},
		"tip":                            {g.Tip(), "b3"},
		"parent":                         {g.Parent("c"), "b"},
		"parent of a root":               {g.Parent("a"), ""},
		"common ancestor":                {g.CommonAncestor("d", "b2"), "b"},
		"common ancestor, the other way": {g.CommonAncestor("b2", "d"), "b"},
		"common ancestor on one chain":   {g.CommonAncestor("d", "b"), "b"},
		"common ancestor of itself":      {g.CommonAncestor("d", "d"), "d"},
		"common ancestor over trees":     {g.CommonAncestor("d", "z"), ""},
		"about nobody": {join(g.Ancestors("?")) + join(g.Chain("?")) + join(g.Siblings("?")) + g.Parent("?") +
			g.CommonAncestor("?", "a") + g.CommonAncestor("a", "?"), ""},
		"of an empty thread": {NewGraph(nil).Tip() + join(NewGraph(nil).Tips()), ""},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %q, want %q", question, tt.got, tt.want)
		}
	}
	if r, ok := g.Run("c"); !ok || r.Start != 3 || g.Len() != 9 || len(g.Runs()) != 9 {
		t.Errorf("run c is %+v, %v of %d", r, ok, g.Len())
	}
	if _, ok := g.Run("?"); ok {
		t.Error("a run that is not there was found")
	}
}

func TestGraph_Branches(t *testing.T) {
	want := []Branch{
		{ID: "a", Runs: []string{"a", "b", "c", "d"}, Tip: "d"},
		{ID: "b1", Parent: "a", Fork: "b", Runs: []string{"b1", "b2"}, Tip: "b2"},
		{ID: "c1", Parent: "a", Fork: "c", Runs: []string{"c1"}, Tip: "c1"},
		{ID: "z", Runs: []string{"z"}, Tip: "z"},
		{ID: "b3", Parent: "a", Fork: "b", Runs: []string{"b3"}, Tip: "b3"},
	}
	if got := NewGraph(sample()).Branches(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// A reader that has not the whole thread names what it has as the whole thread does.
	part := slices.DeleteFunc(sample(), func(r Run) bool { return r.ID == "a" || r.ID == "b" || r.ID == "b1" })
	want = []Branch{
		{ID: "a", Runs: []string{"c", "d"}, Tip: "d"},
		{ID: "b1", Runs: []string{"b2"}, Tip: "b2"},
		{ID: "c1", Parent: "a", Fork: "c", Runs: []string{"c1"}, Tip: "c1"},
		{ID: "z", Runs: []string{"z"}, Tip: "z"},
		{ID: "b3", Runs: []string{"b3"}, Tip: "b3"},
	}
	if got := NewGraph(part).Branches(); !reflect.DeepEqual(got, want) {
		t.Errorf("in part: got  %+v\nwant %+v", got, want)
	}
}

func TestGraph_Spawns(t *testing.T) {
	g := NewGraph([]Run{
		{ID: "early", SpawnedBy: "late", Start: 1},
		{ID: "other", SpawnedBy: "elsewhere", Start: 2},
		{ID: "late", Start: 3},
		{ID: "late~2", ClientID: "late", Start: 4},
		{ID: "pending", Start: 5}, // its input lies here, its first event behind "child"
		{ID: "child", SpawnedBy: "pending", Start: 6},
		{ID: "self", SpawnedBy: "self", Start: 7},
		{ID: "number", SpawnedBy: "self~2", Start: 8},
		{ID: "self~2", ClientID: "self", Start: 9},
	})
	want := []Spawn{
		{Run: "early", By: "late", Known: "late", Late: true},
		{Run: "other", By: "elsewhere"},
		{Run: "child", By: "pending", Known: "pending"},
		{Run: "self", By: "self"},
		{Run: "number", By: "self~2", Known: "self~2", Late: true},
	}
	if got := g.Spawns(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestGraph_SpawnedRunsAreNoSiblingsAndNoTip(t *testing.T) {
	g := NewGraph([]Run{
		{ID: "main", Start: 1}, {ID: "root", Start: 2},
		{ID: "s1", SpawnedBy: "main", Spawned: true, Start: 3}, {ID: "s2", SpawnedBy: "main", Spawned: true, Start: 4},
		{ID: "next", Parent: "s2", Spawned: true, Start: 5},
	})
	got := fmt.Sprintln(g.Siblings("s1"), g.Siblings("s2"), g.Siblings("root"), g.Tip(), g.Tips())
	if got != "[] [] [main] root [main root s1 next]\n" {
		t.Error(got)
	}
	elsewhere := NewGraph([]Run{{ID: "a", SpawnedBy: "of another thread", Start: 1}, {ID: "b", Parent: "a", Start: 2}})
	if elsewhere.Tip() != "b" {
		t.Errorf("tip %q of a thread that was spawned as a whole", elsewhere.Tip())
	}
}

func TestGraph_Basis(t *testing.T) {
	g := NewGraph([]Run{
		{ID: "bare", ParentBy: ParentNone, Start: 1},
		{ID: "guess", Parent: "bare", ParentBy: ParentLatest, Start: 2},
		{ID: "after a guess", Parent: "guess", ParentBy: ParentExplicit, Start: 3},
		{ID: "input", Parent: "guess", ParentBy: ParentContent, HasInput: true, Start: 4},
		{ID: "after an input", Parent: "input", ParentBy: ParentExplicit, Start: 5},
		{ID: "named", Parent: "bare", ParentBy: ParentExplicit, Start: 6},
		{ID: "guess at one not here", Parent: "?", ParentBy: ParentLatest, Start: 7},
	})
	for id, want := range map[string]Basis{
		"bare": BasisNone, "guess": BasisInferred, "after a guess": BasisInferred, "input": BasisInput,
		"after an input": BasisParent, "named": BasisParent, "guess at one not here": BasisInferred, "?": BasisNone,
	} {
		if got := g.Basis(id); got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

func TestGraph_IsSafeOnHostileRuns(t *testing.T) {
	g := NewGraph([]Run{
		{ID: "a", Parent: "c", Branch: "x", Start: 1}, {ID: "b", Parent: "a", Branch: "x", Start: 2},
		{ID: "c", Parent: "b", Branch: "x", Start: 3},
		{ID: "self", Parent: "self", Start: 4},
		{ID: "gone", Parent: "nobody", Start: 5},
		{ID: "a", Parent: "self", Start: 6}, // an id twice
		{ID: "twin1", Parent: "c", Branch: "x", Start: 7}, {ID: "twin2", Parent: "c", Branch: "x", Start: 8},
		{ID: "", Parent: "", Start: 9},
		{ID: "into", Parent: "loop", Start: 0}, {ID: "loop", Parent: "pool", Start: 10}, {ID: "pool", Parent: "loop", Start: 11},
	})
	if got := g.Chain("twin2"); !slices.Equal(got, []string{"a", "b", "c", "twin2"}) {
		t.Errorf("the cycle is cut at %q", got)
	}
	if got := g.Chain("into"); !slices.Equal(got, []string{"loop", "into"}) {
		t.Errorf("the way into a cycle is %q", got)
	}
	checkForest(t, g)
}

// checkForest checks what holds of every graph.
func checkForest(t fataler, g *Graph) {
	t.Helper()
	seen := map[string]int{}
	for _, b := range g.Branches() {
		if b.Tip != b.Runs[len(b.Runs)-1] {
			t.Fatalf("branch %q ends with %q, and its tip is %q", b.ID, b.Runs[len(b.Runs)-1], b.Tip)
		}
		for i, id := range b.Runs {
			seen[id]++
			want := b.Fork
			if i > 0 {
				want = b.Runs[i-1]
			}
			if g.Parent(id) != want {
				t.Fatalf("on branch %q %q follows %q, and its parent is %q", b.ID, id, want, g.Parent(id))
			}
		}
	}
	for _, r := range g.Runs() {
		if seen[r.ID] != 1 {
			t.Fatalf("run %q is on %d branches", r.ID, seen[r.ID])
		}
	}
}

// Laws: on any runs at all, also such as cannot be, the graph is a forest, and its answers are those of
// walking from run to run.
func TestGraph_OfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 30).Draw(t, "runs")
		id := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint("r", rapid.IntRange(0, n).Draw(t, "id")) })
		runs := make([]Run, n)
		for i := range runs {
			runs[i] = Run{ID: fmt.Sprint("r", i), Start: rapid.Int64Range(0, 20).Draw(t, "start"), End: rapid.Int64Range(-1, 0).Draw(t, "end")}
			if rapid.IntRange(0, 5).Draw(t, "has a parent") > 0 {
				runs[i].Parent = id.Draw(t, "parent")
			}
			if rapid.Bool().Draw(t, "sane") && i > 0 {
				runs[i].Parent = fmt.Sprint("r", rapid.IntRange(max(0, i-3), i-1).Draw(t, "before"))
			}
			runs[i].Branch = rapid.SampledFrom([]string{"", "r0", "r1", runs[i].ID}).Draw(t, "branch")
			if rapid.IntRange(0, 8).Draw(t, "spawned") == 0 {
				runs[i].SpawnedBy = agui.String(id.Draw(t, "by"))
			}
		}
		g := NewGraph(runs)
		checkForest(t, g)
		above := func(id string) map[string]bool {
			out := map[string]bool{id: true}
			for p := g.Parent(id); p != ""; p = g.Parent(p) {
				if out[p] {
					t.Fatalf("%q is in a cycle", p)
				}
				out[p] = true
			}
			return out
		}
		for _, a := range runs {
			up := above(a.ID)
			if got := g.Ancestors(a.ID); len(got) != len(up)-1 || slices.ContainsFunc(got, func(id string) bool { return !up[id] }) {
				t.Fatalf("the ancestors of %q are %q", a.ID, got)
			}
			down := g.Descendants(a.ID)
			for _, b := range runs {
				if slices.Contains(down, b.ID) != (b.ID != a.ID && above(b.ID)[a.ID]) {
					t.Fatalf("the descendants of %q are %q", a.ID, down)
				}
				want := ""
				for at := b.ID; at != ""; at = g.Parent(at) {
					if up[at] {
						want = at
						break
					}
				}
				if got := g.CommonAncestor(a.ID, b.ID); got != want {
					t.Fatalf("the common ancestor of %q and %q is %q, want %q", a.ID, b.ID, got, want)
				}
			}
		}
	})
}

// Law: the branches that Place gives are those that the graph finds.
func TestGraph_BranchesAreThoseOfPlacing(t *testing.T) {
	th := branchedThread(t, 500)
	var runs []Run
	for i := range th.Len() {
		r, _ := th.Run(fmt.Sprint("r", i))
		runs = append(runs, r)
	}
	g := NewGraph(runs)
	for _, b := range g.Branches() {
		for _, id := range b.Runs {
			if r, _ := g.Run(id); r.Branch != b.ID {
				t.Fatalf("run %q was placed on branch %q and is drawn on %q", id, r.Branch, b.ID)
			}
		}
	}
	for _, r := range runs {
		if r.Depth != len(g.Ancestors(r.ID)) || r.Root != g.Chain(r.ID)[0] {
			t.Fatalf("run %q was placed at depth %d of %q", r.ID, r.Depth, r.Root)
		}
	}
}

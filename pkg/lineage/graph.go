package lineage

import (
	"cmp"
	"slices"
)

// Graph is the forest of a thread's runs. It accepts inconsistent runs: a run whose parent is missing is a root, and a
// cycle is cut at its run that started first. Every walk is a loop, so chains may be of any length. Questions name runs
// by id; about an unknown run the answer is empty. Lists are in order of start unless they say otherwise. A Graph does
// not change and may be shared.
type Graph struct {
	runs     []Run
	index    map[string]int
	parent   []int // -1 for a root
	children [][]int
	depth    []int
	// topo holds every run after its parent.
	topo []int
	// next is the child that continues the run's branch, or -1.
	next   []int
	spawns map[int]Spawn
	tip    int // -1 if the graph does not have it
	// tips are those of the whole thread if the graph is only a part of one; nil stands for the runs without children.
	tips map[string]bool
}

// NewGraph returns the graph of runs, in any order. Of several with one id, the one that started first counts.
func NewGraph(runs []Run) *Graph {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b Run) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
	})
	g := &Graph{index: make(map[string]int, len(runs)), runs: make([]Run, 0, len(runs)), tip: -1}
	for _, r := range sorted {
		if _, ok := g.index[r.ID]; !ok {
			g.index[r.ID] = len(g.runs)
			g.runs = append(g.runs, r)
		}
	}
	g.linkParents()
	g.children = make([][]int, len(g.runs))
	for i, p := range g.parent {
		if p >= 0 {
			g.children[p] = append(g.children[p], i)
		}
	}
	g.walkDown()
	g.linkBranches()
	g.linkSpawns()
	for i := range g.runs {
		if len(g.children[i]) == 0 {
			g.tip = i // the last one in order of start stays
		}
	}
	return g
}

// NewPart returns the graph of some of a thread's runs. A run whose parent is not among them begins a tree. tips and
// tip are those of the whole thread, as a run at which the part was cut is no tip.
func NewPart(runs []Run, tips []string, tip string) *Graph {
	there := make(map[string]bool, len(runs))
	for _, r := range runs {
		there[r.ID] = true
	}
	part := slices.Clone(runs)
	for i := range part {
		if !there[part[i].Parent] {
			part[i].Parent = ""
		}
	}
	g := NewGraph(part)
	g.tips, g.tip = make(map[string]bool, len(tips)), -1
	for _, id := range tips {
		g.tips[id] = true
	}
	if i, ok := g.index[tip]; ok {
		g.tip = i
	}
	return g
}

// linkParents finds parents and cuts cycles.
func (g *Graph) linkParents() {
	g.parent = make([]int, len(g.runs))
	for i, r := range g.runs {
		g.parent[i] = -1
		if p, ok := g.index[r.Parent]; ok && r.Parent != "" && p != i {
			g.parent[i] = p
		}
	}
	walk := make([]int, len(g.runs)) // the walk that visited a run, from 1
	for i := range g.runs {
		at := i
		for at >= 0 && walk[at] == 0 {
			walk[at] = i + 1
			at = g.parent[at]
		}
		if at < 0 || walk[at] != i+1 {
			continue
		}
		first := at // the walk has met itself
		for j := g.parent[at]; j != at; j = g.parent[j] {
			first = min(first, j)
		}
		g.parent[first] = -1
	}
}

func (g *Graph) walkDown() {
	g.depth = make([]int, len(g.runs))
	g.topo = make([]int, 0, len(g.runs))
	for i, p := range g.parent {
		if p < 0 {
			g.topo = append(g.topo, i)
		}
	}
	for n := 0; n < len(g.topo); n++ {
		for _, c := range g.children[g.topo[n]] {
			g.depth[c] = g.depth[g.topo[n]] + 1
			g.topo = append(g.topo, c)
		}
	}
}

// Len returns the number of runs.
func (g *Graph) Len() int { return len(g.runs) }

// Runs returns all runs. The list must not be changed.
func (g *Graph) Runs() []Run { return g.runs }

// Run returns a run.
func (g *Graph) Run(id string) (Run, bool) {
	i, ok := g.index[id]
	if !ok {
		return Run{}, false
	}
	return g.runs[i], true
}

func (g *Graph) has(id string) bool {
	_, ok := g.index[id]
	return ok
}

// Parent returns the run's parent, or "" for a root and for a run whose parent is not in the graph.
func (g *Graph) Parent(id string) string {
	if i, ok := g.index[id]; ok && g.parent[i] >= 0 {
		return g.runs[g.parent[i]].ID
	}
	return ""
}

// Chain returns the run and its ancestors, the root first.
func (g *Graph) Chain(id string) []string {
	chain := g.Ancestors(id)
	slices.Reverse(chain)
	if _, ok := g.index[id]; ok {
		chain = append(chain, id)
	}
	return chain
}

// Ancestors returns the run's parent, the parent's parent and so on.
func (g *Graph) Ancestors(id string) []string {
	i, ok := g.index[id]
	if !ok {
		return nil
	}
	out := make([]string, 0, g.depth[i])
	for i = g.parent[i]; i >= 0; i = g.parent[i] {
		out = append(out, g.runs[i].ID)
	}
	return out
}

// Latest maps each run to the last started of itself and its descendants.
func (g *Graph) Latest() map[string]string {
	latest := make([]int, len(g.runs))
	for _, i := range slices.Backward(g.topo) { // children before their parents
		latest[i] = max(latest[i], i) // runs are in the order of their starts
		if p := g.parent[i]; p >= 0 {
			latest[p] = max(latest[p], latest[i])
		}
	}
	byID := make(map[string]string, len(g.runs))
	for i, r := range g.runs {
		byID[r.ID] = g.runs[latest[i]].ID
	}
	return byID
}

// Descendants returns the run's children, their children and so on.
func (g *Graph) Descendants(id string) []string {
	i, ok := g.index[id]
	if !ok {
		return nil
	}
	found := slices.Clone(g.children[i])
	for n := 0; n < len(found); n++ {
		found = append(found, g.children[found[n]]...)
	}
	slices.Sort(found)
	return g.ids(found)
}

// Children returns the run's children.
func (g *Graph) Children(id string) []string {
	if i, ok := g.index[id]; ok {
		return g.ids(g.children[i])
	}
	return nil
}

// Siblings returns the other children of the run's parent; of a root, the other roots.
func (g *Graph) Siblings(id string) []string {
	i, ok := g.index[id]
	if !ok {
		return nil
	}
	var all []int
	if p := g.parent[i]; p >= 0 {
		all = slices.Clone(g.children[p])
	} else {
		all = g.roots()
	}
	return g.ids(slices.DeleteFunc(all, func(j int) bool { return j == i }))
}

// Roots returns the runs without a parent in the graph.
func (g *Graph) Roots() []string { return g.ids(g.roots()) }

func (g *Graph) roots() []int {
	var out []int
	for i, p := range g.parent {
		if p < 0 {
			out = append(out, i)
		}
	}
	return out
}

// Tips returns the thread's runs without children, as far as the graph has them.
func (g *Graph) Tips() []string {
	var out []int
	for i, r := range g.runs {
		if g.tips == nil && len(g.children[i]) == 0 || g.tips[r.ID] {
			out = append(out, i)
		}
	}
	return g.ids(out)
}

// Tip returns the tip that started last, which represents the thread if no run is named. It is "" for a thread without
// runs and for a part without that tip.
func (g *Graph) Tip() string {
	if g.tip < 0 {
		return ""
	}
	return g.runs[g.tip].ID
}

// CommonAncestor returns the last run that the chains of both runs contain: one of the two if it is the other or its
// ancestor, "" if they are in different trees.
func (g *Graph) CommonAncestor(a, b string) string {
	i, ok := g.index[a]
	j, ok2 := g.index[b]
	if !ok || !ok2 {
		return ""
	}
	for i != j {
		if g.depth[i] < g.depth[j] {
			i, j = j, i
		}
		if i = g.parent[i]; i < 0 {
			return ""
		}
	}
	return g.runs[i].ID
}

// Basis is what the messages of a history start from.
type Basis string

// The bases of a history.
const (
	// BasisInput: the run's own input.
	BasisInput Basis = "input"
	// BasisParent: the history of a parent that is certain.
	BasisParent Basis = "parent"
	// BasisInferred: the history of an inferred parent.
	BasisInferred Basis = "inferred"
	// BasisNone: nothing, a root without an input.
	BasisNone Basis = "none"
)

// Basis returns what the run's history starts from. An inferred parent makes the history of children without an input
// of their own inferred, too.
func (g *Graph) Basis(id string) Basis {
	i, ok := g.index[id]
	if !ok {
		return BasisNone
	}
	if g.runs[i].HasInput {
		return BasisInput
	}
	if g.runs[i].Parent == "" {
		return BasisNone
	}
	for ; i >= 0 && !g.runs[i].HasInput; i = g.parent[i] {
		if g.runs[i].ParentBy.Inferred() {
			return BasisInferred
		}
	}
	return BasisParent
}

func (g *Graph) ids(list []int) []string {
	out := make([]string, len(list))
	for n, i := range list {
		out[n] = g.runs[i].ID
	}
	return out
}

package lineage

import (
	"cmp"
	"slices"
)

// Graph is the forest of a thread's runs. It accepts inconsistent runs: a run whose parent is missing is a root, and a
// cycle is cut at its run that started first. Every walk is a loop, so chains may be of any length. Most methods take
// run ids, and return an empty result for an unknown run. Lists are in order of start unless documented otherwise. A
// Graph does not change and may be shared.
//
// Drawings use the numbers of runs instead: their indexes in Runs.
type Graph struct {
	// ParentOf is -1 for a root, NextOf the child that continues the run's branch, or -1.
	ParentOf, NextOf []int
	ChildrenOf       [][]int
	SpawnOf          map[int]Spawn

	runs  []Run
	index map[string]int
	depth []int
	// topo holds every run after its parent.
	topo []int
	tip  int // -1 if the graph does not have it
	// tips are the tips of the whole thread if the graph is only a part of it; nil means the runs without children.
	tips map[string]bool
}

// NewGraph returns the graph of runs, which may be in any order. Of several with one id, the one that started first counts.
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
	g.ChildrenOf = make([][]int, len(g.runs))
	for i, p := range g.ParentOf {
		if p >= 0 {
			g.ChildrenOf[p] = append(g.ChildrenOf[p], i)
		}
	}
	g.walkDown()
	g.linkBranches()
	g.linkSpawns()
	g.findTip()
	return g
}

// findTip finds the tip that started last, among those of spawned trees only if the thread has no others.
func (g *Graph) findTip() {
	for i, r := range g.runs {
		if len(g.ChildrenOf[i]) == 0 && (!r.Spawned || g.tip < 0 || g.runs[g.tip].Spawned) {
			g.tip = i
		}
	}
}

// NewPart returns the graph of some of a thread's runs. A run whose parent is not among them begins a tree. The arguments
// tips and tip are those of the whole thread, as a run at which the part was cut is no tip.
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
	g.tips = make(map[string]bool, len(tips))
	for _, id := range tips {
		g.tips[id] = true
	}
	g.tip = g.Find(tip)
	return g
}

// linkParents finds parents and cuts cycles.
func (g *Graph) linkParents() {
	g.ParentOf = make([]int, len(g.runs))
	for i, r := range g.runs {
		g.ParentOf[i] = -1
		if p, ok := g.index[r.Parent]; ok && r.Parent != "" && p != i {
			g.ParentOf[i] = p
		}
	}
	walk := make([]int, len(g.runs)) // the walk that visited a run, from 1
	for i := range g.runs {
		at := i
		for at >= 0 && walk[at] == 0 {
			walk[at] = i + 1
			at = g.ParentOf[at]
		}
		if at < 0 || walk[at] != i+1 {
			continue
		}
		first := at // the walk has come back to its own runs: a cycle
		for j := g.ParentOf[at]; j != at; j = g.ParentOf[j] {
			first = min(first, j)
		}
		g.ParentOf[first] = -1
	}
}

func (g *Graph) walkDown() {
	g.depth = make([]int, len(g.runs))
	g.topo = make([]int, 0, len(g.runs))
	for i, p := range g.ParentOf {
		if p < 0 {
			g.topo = append(g.topo, i)
		}
	}
	for n := 0; n < len(g.topo); n++ {
		for _, c := range g.ChildrenOf[g.topo[n]] {
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

// Find returns the number of a run, or -1.
func (g *Graph) Find(id string) int {
	if i, ok := g.index[id]; ok {
		return i
	}
	return -1
}

// Parent returns the run's parent, or "" for a root and for a run whose parent is not in the graph.
func (g *Graph) Parent(id string) string {
	if i, ok := g.index[id]; ok && g.ParentOf[i] >= 0 {
		return g.runs[g.ParentOf[i]].ID
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
	for i = g.ParentOf[i]; i >= 0; i = g.ParentOf[i] {
		out = append(out, g.runs[i].ID)
	}
	return out
}

// Latest maps each run to the one that started last among itself and its descendants.
func (g *Graph) Latest() map[string]string {
	latest := make([]int, len(g.runs))
	for _, i := range slices.Backward(g.topo) { // children before their parents
		latest[i] = max(latest[i], i) // runs are in the order of their starts
		if p := g.ParentOf[i]; p >= 0 {
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
	found := slices.Clone(g.ChildrenOf[i])
	for n := 0; n < len(found); n++ {
		found = append(found, g.ChildrenOf[found[n]]...)
	}
	slices.Sort(found)
	return g.ids(found)
}

// Siblings returns the other children of the run's parent; of a root, the other roots. A spawned run is no sibling of any.
func (g *Graph) Siblings(id string) []string {
	i, ok := g.index[id]
	if !ok || g.runs[i].SpawnedBy != "" {
		return nil
	}
	var out []int
	for j, p := range g.ParentOf {
		if p == g.ParentOf[i] && j != i && g.runs[j].SpawnedBy == "" {
			out = append(out, j)
		}
	}
	return g.ids(out)
}

// Tips returns the thread's runs without children, as far as the graph has them.
func (g *Graph) Tips() []string {
	var out []int
	for i, r := range g.runs {
		if g.tips == nil && len(g.ChildrenOf[i]) == 0 || g.tips[r.ID] {
			out = append(out, i)
		}
	}
	return g.ids(out)
}

// Tip returns the tip that started last, which represents the thread if no run is named. What a run of the thread spawned does not count,
// unless there is nothing else. It is "" for a thread without runs and for a part without that tip.
func (g *Graph) Tip() string {
	if g.tip < 0 {
		return ""
	}
	return g.runs[g.tip].ID
}

// CommonAncestor returns the last run that the chains of both runs contain. It may return one of the two, and returns "" if
// they are in different trees.
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
		if i = g.ParentOf[i]; i < 0 {
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

// Basis returns what the run's history starts from. An inferred parent also makes the history of its children inferred,
// unless they have an input of their own.
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
	for ; i >= 0 && !g.runs[i].HasInput; i = g.ParentOf[i] {
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

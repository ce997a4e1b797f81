package draw

import "github.com/skeinhq/skein/pkg/lineage"

// forest is a graph whose runs are numbered in order of start.
type forest struct {
	*lineage.Graph
	runs     []lineage.Run
	index    map[string]int
	parent   []int // -1 for a root
	next     []int // the child that continues the run's branch, or -1
	children [][]int
	spawns   map[int]lineage.Spawn
	tip      int // -1: not in the graph
}

func newForest(g *lineage.Graph) *forest {
	runs := g.Runs()
	f := &forest{
		Graph: g, runs: runs, index: make(map[string]int, len(runs)), parent: make([]int, len(runs)), next: make([]int, len(runs)),
		children: make([][]int, len(runs)), spawns: map[int]lineage.Spawn{},
	}
	for i, r := range runs {
		f.index[r.ID] = i
	}
	for i, r := range runs {
		f.next[i], f.parent[i] = -1, f.find(g.Parent(r.ID))
		if p := f.parent[i]; p >= 0 {
			f.children[p] = append(f.children[p], i)
		}
	}
	for _, b := range g.Branches() {
		for n, id := range b.Runs[1:] {
			f.next[f.index[b.Runs[n]]] = f.index[id]
		}
	}
	for _, s := range g.Spawns() {
		f.spawns[f.index[s.Run]] = s
	}
	f.tip = f.find(g.Tip())
	return f
}

// find returns the number of a run, or -1.
func (f *forest) find(id string) int {
	if i, ok := f.index[id]; ok {
		return i
	}
	return -1
}

// starts reports whether a branch begins with the run.
func (f *forest) starts(i int) bool { return f.parent[i] < 0 || f.next[f.parent[i]] != i }

// order lists the runs by start. A run whose parent started later, which sound data never has, comes right after it.
func (f *forest) order() []int {
	out := make([]int, 0, len(f.runs))
	placed := make([]bool, len(f.runs))
	late := make(map[int][]int)
	var place func(i int)
	place = func(i int) {
		out = append(out, i)
		placed[i] = true
		for _, c := range late[i] {
			place(c)
		}
	}
	for i := range f.runs {
		if p := f.parent[i]; p >= 0 && !placed[p] {
			late[p] = append(late[p], i)
			continue
		}
		place(i)
	}
	return out
}

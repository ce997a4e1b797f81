package lineage

// Branch is a chain of runs without a fork in between: a run's first child continues its branch, and every further
// child starts a new one.
type Branch struct {
	// ID is the id of the branch's first run.
	ID string `json:"branchId"`
	// Parent is the branch from which this one forks, Fork the run after which it forks. Both are empty for a tree's
	// first branch.
	Parent string `json:"parentBranchId,omitempty"`
	Fork   string `json:"forkRunId,omitempty"`
	// Runs are its runs from the first to the tip.
	Runs []string `json:"runs"`
	Tip  string   `json:"tipRunId"`
}

// linkBranches finds the child that continues each run's branch: the first child with the run's branch id or with
// none.
func (g *Graph) linkBranches() {
	g.NextOf = make([]int, len(g.runs))
	for i := range g.runs {
		g.NextOf[i] = -1
		for _, c := range g.ChildrenOf[i] {
			if own := g.runs[c].Branch; own == "" || own == g.runs[i].Branch {
				g.NextOf[i] = c
				break
			}
		}
	}
}

// Starts reports whether a branch begins with the run.
func (g *Graph) Starts(i int) bool { return g.ParentOf[i] < 0 || g.NextOf[g.ParentOf[i]] != i }

// Branches returns the branches in order of their first run's start.
func (g *Graph) Branches() []Branch {
	var out []Branch
	branchOf := make([]string, len(g.runs))
	used := make(map[string]bool)
	for i := range g.runs {
		if !g.Starts(i) {
			continue
		}
		b := Branch{ID: g.runs[i].ID}
		if rest := g.runs[i].Branch; rest != "" && g.ParentOf[i] < 0 && g.Find(rest) < 0 && !used[rest] {
			b.ID = rest // the rest of a branch whose first run is missing keeps its id
		}
		used[b.ID] = true
		for at := i; at >= 0; at = g.NextOf[at] {
			branchOf[at] = b.ID
			b.Runs = append(b.Runs, g.runs[at].ID)
		}
		b.Tip = b.Runs[len(b.Runs)-1]
		out = append(out, b)
	}
	for n := range out {
		if p := g.ParentOf[g.index[out[n].Runs[0]]]; p >= 0 {
			out[n].Fork, out[n].Parent = g.runs[p].ID, branchOf[p]
		}
	}
	return out
}

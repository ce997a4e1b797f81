package lineage

import (
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Spawn is the edge from a run to the one that spawned it: it named a parent that its thread did not have at its first event, or one that
// was open and shared no message with it. It is part of no chain; pictures draw it beside the chains.
type Spawn struct {
	// Run is the spawned run, By the id that it named.
	Run string      `json:"runId"`
	By  agui.String `json:"spawnedBy"`
	// Known is the run of this thread that By names; empty for a run of another thread, or one that never came. Late means that it began
	// after Run.
	Known string `json:"knownRunId,omitempty"`
	Late  bool   `json:"late,omitempty"`
}

// linkSpawns resolves the named ids. If several runs share a client run id, the last one before the spawned run counts, else the first.
func (g *Graph) linkSpawns() {
	g.SpawnOf = make(map[int]Spawn)
	var byClientRunID map[string][]int
	for i, r := range g.runs {
		if r.SpawnedBy == "" {
			continue
		}
		if byClientRunID == nil {
			byClientRunID = make(map[string][]int)
			for j, o := range g.runs {
				byClientRunID[o.ClientRunID()] = append(byClientRunID[o.ClientRunID()], j)
			}
		}
		s := Spawn{Run: r.ID, By: r.SpawnedBy}
		named := byClientRunID[string(r.SpawnedBy)]
		if j, ok := g.index[string(r.SpawnedBy)]; ok && len(named) == 0 {
			named = []int{j}
		}
		n, _ := slices.BinarySearch(named, i)
		if n = max(0, n-1); n < len(named) && named[n] != i {
			s.Known, s.Late = g.runs[named[n]].ID, named[n] > i
		}
		g.SpawnOf[i] = s
	}
}

// Spawns returns the edges of all runs that have one, in order of their start.
func (g *Graph) Spawns() []Spawn {
	var out []Spawn
	for i := range g.runs {
		if s, ok := g.SpawnOf[i]; ok {
			out = append(out, s)
		}
	}
	return out
}

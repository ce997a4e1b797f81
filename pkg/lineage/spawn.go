package lineage

import "github.com/skeinhq/skein/pkg/agui"

// Spawn is the edge of a run that named a parent, if its thread had no such run at its first event. It is part of no
// chain; pictures draw it beside the chains.
type Spawn struct {
	// Run is the spawned run, By the id that it named.
	Run string      `json:"runId"`
	By  agui.String `json:"spawnedBy"`
	// Known is the run of this thread that By names, if it came later; empty for a run of another thread, or one that
	// never came. Late is true with every Known: that run began after Run, otherwise it would be the parent.
	Known string `json:"knownRunId,omitempty"`
	Late  bool   `json:"late,omitempty"`
}

// linkSpawns resolves the named ids. If several runs share a client run id, the first counts.
func (g *Graph) linkSpawns() {
	g.SpawnOf = make(map[int]Spawn)
	var byClientRunID map[string]int
	for i, r := range g.runs {
		if r.SpawnedBy == "" {
			continue
		}
		if byClientRunID == nil {
			byClientRunID = make(map[string]int)
			for j, o := range g.runs {
				if _, ok := byClientRunID[o.ClientRunID()]; !ok {
					byClientRunID[o.ClientRunID()] = j
				}
			}
		}
		s := Spawn{Run: r.ID, By: r.SpawnedBy}
		j, ok := byClientRunID[string(r.SpawnedBy)]
		if !ok {
			j, ok = g.index[string(r.SpawnedBy)]
		}
		if ok && j != i {
			s.Known, s.Late = g.runs[j].ID, true
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

package draw

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// Badge marks what is inferred, missing or unusual about a run, or about the runs of a row.
type Badge struct {
	Name BadgeName `json:"name"`
	// Run is the id of another run that the badge names, such as a missing parent.
	Run agui.String `json:"runId,omitempty"`
	// Count is how many runs of the row have the badge; 0 if the row shows one run.
	Count int `json:"count,omitempty"`
}

// BadgeName is a kind of badge.
type BadgeName string

// The badges.
const (
	// BadgeOpen: the run has not ended.
	BadgeOpen BadgeName = "open"
	// BadgeContent: the parent was inferred from the input's messages.
	BadgeContent BadgeName = "~content"
	// BadgeLatest: the parent was guessed, as the run that ended last.
	BadgeLatest BadgeName = "~latest"
	// BadgeMissing: the parent is not among these runs.
	BadgeMissing BadgeName = "parent not here"
	// BadgeRewrote begins the badges of runs whose input departs from the parent's history; the kind of
	// rewrite follows.
	BadgeRewrote BadgeName = "history "
	// BadgeSynthetic: no event of the agent ended the run.
	BadgeSynthetic BadgeName = "synthetic end"
	// BadgeTruncated: contents of the record were replaced by references.
	BadgeTruncated BadgeName = "truncated"
	// BadgeRawLost: raw events of the run are gone.
	BadgeRawLost BadgeName = "raw lost"
	// BadgeLate: the run named a parent that came after it.
	BadgeLate BadgeName = "late parent"
	// BadgeSpawned: the run names a run that spawned it.
	BadgeSpawned BadgeName = "spawned by"
)

// String returns the badge as text that is safe to print.
func (b Badge) String() string { return b.text(false) }

func (b Badge) text(ascii bool) string {
	s := string(b.Name)
	if b.Run != "" {
		s += ": " + display(string(b.Run), ascii)
	}
	if b.Count > 1 {
		s = fmt.Sprintf("%d × %s", b.Count, s)
		if ascii {
			s = fmt.Sprintf("%d x %s", b.Count, b.Name)
		}
	}
	return s
}

// badges returns the badges of a run.
func badges(g *lineage.Graph, i int) []Badge {
	r := &g.Runs()[i]
	var out []Badge
	add := func(is bool, name BadgeName) {
		if is {
			out = append(out, Badge{Name: name})
		}
	}
	add(r.Open(), BadgeOpen)
	add(r.ParentBy == lineage.ParentContent, BadgeContent)
	add(r.ParentBy == lineage.ParentLatest, BadgeLatest)
	if r.Parent != "" && g.ParentOf[i] < 0 {
		out = append(out, Badge{Name: BadgeMissing, Run: agui.String(r.Parent)})
	}
	if s, ok := g.SpawnOf[i]; ok {
		name := BadgeSpawned
		if s.Late {
			name = BadgeLate
		}
		out = append(out, Badge{Name: name, Run: s.By})
	}
	for _, kind := range r.Rewrote {
		add(true, BadgeRewrote+BadgeName(kind))
	}
	add(r.Synthetic, BadgeSynthetic)
	add(r.Truncated, BadgeTruncated)
	add(r.RawLost, BadgeRawLost)
	return out
}

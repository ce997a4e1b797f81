package query

import (
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/store"
)

// graphOf returns the graph of a thread's rows.
func graphOf(runs []store.Run) *lineage.Graph { return lineage.NewGraph(headsOf(runs)) }

func headsOf(runs []store.Run) []lineage.Run {
	heads := make([]lineage.Run, len(runs))
	for i, r := range runs {
		heads[i] = headOf(r)
	}
	return heads
}

// headOf is what lineage needs to know of a row.
func headOf(r store.Run) lineage.Run {
	head := fold.LineageOf(&r.Run)
	head.Sealed = r.Status.Sealed()
	for _, kind := range r.Rewrote {
		head.Rewrote = append(head.Rewrote, lineage.Rewrite(kind))
	}
	return head
}

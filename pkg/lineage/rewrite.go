package lineage

import (
	"bytes"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Rewrite is a way in which a run's input departs from its parent's history. The values are those of
// the run record.
type Rewrite string

// The rewrites. An input that has none goes on from its parent's history.
const (
	// RewriteReplaced: nothing of the history is in the input.
	RewriteReplaced Rewrite = "replaced"
	// RewriteSummarised: messages before the last one that is kept are left out, and new ones stand
	// before it.
	RewriteSummarised Rewrite = "summarised"
	// RewriteTrimmed: messages before the last one that is kept are left out, and no new one stands
	// before it.
	RewriteTrimmed Rewrite = "trimmed"
	// RewriteInserted: none is left out, and new ones stand before the last one that is kept.
	RewriteInserted Rewrite = "inserted"
	// RewriteRewound: messages at the history's end are left out, as where a question is edited and sent
	// again, or an answer is made anew.
	RewriteRewound Rewrite = "rewound"
	// RewriteReordered: messages that are kept stand in another order.
	RewriteReordered Rewrite = "reordered"
	// RewriteEdited: a message that is kept has another content.
	RewriteEdited Rewrite = "edited"
)

// Rewrites are all of them.
var Rewrites = []Rewrite{RewriteReplaced, RewriteSummarised, RewriteTrimmed, RewriteInserted, RewriteRewound, RewriteReordered, RewriteEdited}

// RewritesOf says how an input departs from the history of the run's parent: nil where it goes on from
// it, or where one of the two is empty. Messages are told apart by id, and where an id stands several
// times by its turn; content is the same where Raw is. Activity messages, which clients do not send, do
// not count. The cost is linear.
func RewritesOf(parent, input []agui.Message) []Rewrite {
	parent, input = InputMessages(parent), InputMessages(input)
	if len(parent) == 0 || len(input) == 0 {
		return nil
	}
	places := make(map[string][]int, len(input))
	for i, m := range input {
		places[m.ID] = append(places[m.ID], i)
	}
	kept, missing := 0, 0        // messages of the parent that are kept, and those left out before the last of them
	gap := 0                     // left out since the last one that was kept
	last, reordered := -1, false // the furthest place in the input of one that is kept
	edited := false
	for _, m := range parent {
		at := places[m.ID]
		if len(at) == 0 {
			gap++
			continue
		}
		i := at[0]
		places[m.ID] = at[1:]
		kept, missing, gap = kept+1, missing+gap, 0
		reordered = reordered || i < last
		last = max(last, i)
		edited = edited || !bytes.Equal(m.Raw, input[i].Raw)
	}
	if kept == 0 {
		return []Rewrite{RewriteReplaced}
	}
	inserted := last+1 > kept
	all := []struct {
		is   bool
		name Rewrite
	}{
		{missing > 0 && inserted, RewriteSummarised},
		{missing > 0 && !inserted, RewriteTrimmed},
		{missing == 0 && inserted, RewriteInserted},
		{gap > 0, RewriteRewound},
		{reordered, RewriteReordered},
		{edited, RewriteEdited},
	}
	var out []Rewrite
	for _, r := range all {
		if r.is {
			out = append(out, r.name)
		}
	}
	return slices.Clip(out)
}

package lineage

import (
	"bytes"
	"slices"

	"github.com/skeinhq/skein/pkg/agui"
)

// Rewrite is a way in which a run's input differs from its parent's history. The values are those of the run record.
type Rewrite string

// An input without any Rewrite continues its parent's history.
const (
	// RewriteReplaced: the input has none of the history.
	RewriteReplaced Rewrite = "replaced"
	// RewriteSummarised: messages before the last one that is kept are missing, and new ones precede it.
	RewriteSummarised Rewrite = "summarised"
	// RewriteTrimmed: messages before the last one that is kept are missing, and no new one precedes it.
	RewriteTrimmed Rewrite = "trimmed"
	// RewriteInserted: no message before the last one that is kept is missing, and new ones precede it.
	RewriteInserted Rewrite = "inserted"
	// RewriteRewound: messages at the history's end are missing, as when a question is edited and sent again, or an answer
	// is regenerated.
	RewriteRewound Rewrite = "rewound"
	// RewriteReordered: messages that are kept are in another order.
	RewriteReordered Rewrite = "reordered"
	// RewriteEdited: a message that is kept has other content.
	RewriteEdited Rewrite = "edited"
)

// Rewrites are all values of Rewrite.
var Rewrites = []Rewrite{RewriteReplaced, RewriteSummarised, RewriteTrimmed, RewriteInserted, RewriteRewound, RewriteReordered,
	RewriteEdited}

// RewritesOf returns how an input differs from the history of the run's parent; nil if it continues that history, or if
// either is empty. It pairs messages by id, repeated ids in order, and compares contents by Raw. Activities do not
// count, as clients do not send them. The cost is linear.
func RewritesOf(parent, input []agui.Message) []Rewrite {
	parent, input = InputMessages(parent), InputMessages(input)
	if len(parent) == 0 || len(input) == 0 {
		return nil
	}
	places := make(map[string][]int, len(input))
	for i, m := range input {
		places[m.ID] = append(places[m.ID], i)
	}
	kept, missing := 0, 0        // the parent's messages that are kept, and those missing before the last of them
	gap := 0                     // missing since the last one that was kept
	last, reordered := -1, false // the highest index in the input of one that is kept
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

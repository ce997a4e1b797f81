package conformance_test

import (
	"encoding/json"
	"slices"

	"github.com/skeinhq/skein/test/conformance"
)

// knownToBeMended are differences that are no rows of docs/fold.md and are being mended elsewhere. An entry goes when its
// mend is there; the list goes with the last one.
var knownToBeMended = []row{
	{name: "09: half a surrogate pair as an id", again: func(events []json.RawMessage, _ conformance.Conversation) bool {
		return slices.ContainsFunc(events, func(e json.RawMessage) bool {
			return slices.ContainsFunc(halfIDs, func(id string) bool { return says(e, id) })
		})
	}},
}

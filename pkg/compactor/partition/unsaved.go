package partition

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
)

// unsaved has the final records of runs until they are committed.
type unsaved struct {
	records map[string][]byte                // encoded, by record key
	known   map[string]lineage.KnownMessages // the ids of their own messages, by thread
}

func newUnsaved() unsaved {
	return unsaved{records: map[string][]byte{}, known: map[string]lineage.KnownMessages{}}
}

// put adds the final record of a run that ended at the offset end. The argument own is the run's own messages.
func (u *unsaved) put(thread, key string, value []byte, end int64, own []agui.Message) {
	u.records[key] = value
	if u.known[thread] == nil {
		u.known[thread] = lineage.KnownMessages{}
	}
	u.known[thread].Add(end, own)
}

package partition

import (
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// resolution is the final parent resolution of a run. It also has the run's ranges and next offset before its first event, for a record
// that covers its input (coverBefore).
type resolution struct {
	*fold.Resolution
	ranges [][2]int64
	next   int64
}

// resolvedAt returns the resolution of a run whose first event was folded. Call it before noteEvent.
func (r *run) resolvedAt(resolved *fold.Resolution) *resolution {
	return &resolution{Resolution: resolved, ranges: r.ranges.List(), next: max(r.meta.Next, r.meta.Start)}
}

// fits reports whether a record has room for a history and an input. It compares their size as a record encodes them, so the result is the
// same whether or not they were read from a record.
func (c Config) fits(at lineage.History, input *agui.RunAgentInput) bool {
	room := c.RecordLimit * 7 / 8
	bytes := at.Bytes() + len(at.State)
	if input != nil {
		bytes += len(input.Raw)
	}
	if bytes <= room { // encoding does not make them larger
		return true
	}
	bytes = compactedBytes(at.Messages) + len(record.Compacted(at.State))
	if input != nil {
		bytes += compactedBytes(input.Messages) + len(record.Compacted(agui.Without(input.Raw, "messages")))
	}
	return bytes <= room
}

func compactedBytes(messages []agui.Message) (n int) {
	for _, m := range messages {
		n += len(record.Compacted(m.Raw))
	}
	return n
}

// decide sets the run's parent resolution for good.
func (r *run) decide(resolved *resolution) error {
	p := r.thread.p
	h := r.meta
	h.Decide(resolved.Run, r.rawLost)
	var rec record.Run
	resolved.Describe(&rec, r.InputSHA256)
	r.setOrigin(&rec, resolved.Base)
	r.Early, r.Input, r.kept = nil, nil, p.cfg.KeepEvents
	if r.Placed != nil { // a committed record has the resolution
		r.Placed = nil
	} else {
		resolved.Fold, resolved.Input = nil, nil
		r.unwritten = resolved
		p.room.outputs.Add(-announcementBytes)
		if resolved.Base.Messages == nil { // the announcement has what its parent had said
			p.room.outputs.Add(int64(-resolved.Parent.Bytes() - len(resolved.Parent.State)))
		}
	}
	r.setBase(resolved.Parent)
	return r.show()
}

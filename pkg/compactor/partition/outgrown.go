package partition

import (
	"fmt"

	"github.com/skeinhq/skein/pkg/record"
)

// outgrown is how many record limits a run may hold. Over one limit it has no record until it ends, so it
// stays in memory and holds the commit; over this many it is ended.
const outgrown = 4

// partOverhead is what a message, a tool call or a type of events counts for beside its bytes.
const partOverhead = 512

// endOutgrown ends a run for good, as one that was abandoned, where an event of so many bytes has made it too large: it
// could fill the memory of this process, and of the next one, which would fold it again. Its record is
// cut to the limit and says why; what comes behind it is handled as behind any end.
//
// That follows from the events alone, whenever records are written and wherever a fold goes on from one: so
// it comes out the same when they are read again. It is looked at whenever what the run has said crosses another
// record limit, as to measure it takes a part of what it took to fold that. What patches copy meanwhile is bounded by
// the fold (docs/fold.md).
// Below P it was looked at before, and the run went on: what it said was taken in, so it is not ended there where the limit is a
// lower one by now, nor by a version that knows this rule as the first.
func (p *Processor) endOutgrown(r *run, bytes int) error {
	limit, before := int64(p.cfg.RecordLimit), r.said
	if r.said += int64(bytes); before/limit == r.said/limit || p.next <= p.progress.Processed {
		return nil
	}
	rec, _, err := p.describe(r)
	if err != nil {
		return err
	}
	size := record.LeastBytes(rec)
	if size <= p.cfg.RecordLimit || size+partOverhead*parts(rec) <= outgrown*p.cfg.RecordLimit {
		return nil
	}
	r.giveUp(rec, runError(fmt.Sprintf("The run was ended, as it had grown too large: its record would have had %d bytes, %d are allowed.", size, limit), codeOutgrown))
	return p.end(r, rec, r.base, Output{Kind: outputOutgrown, Outgrown: &Outgrown{r.thread.tenant, r.thread.id, r.head.ID, size}})
}

// parts is the number of what makes a fold take memory beside the bytes.
func parts(rec *record.Run) int {
	n := len(rec.Messages) + len(rec.Stats.Events)
	for _, calls := range rec.Stats.ToolCalls {
		n += int(calls)
	}
	return n
}

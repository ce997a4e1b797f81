package partition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// A run that is too large is cut: references replace its largest contents in its record, and later events are counted and hashed, but
// not folded (compact.Run.Cut). It still ends with the agent's own terminal event. Two limits cut a run:
//
//   - The limit of one run: it holds more than four record limits (cutIfOutgrown). That depends on its events alone.
//   - The limit of all open runs: those that cannot leave memory hold more than the process, or their tenant's quota, allows. Then the
//     largest run of the tenant that holds most is cut (CutLargest). That depends on what else is in memory, so another process may
//     decide differently. Nevertheless it is decided only once: the transaction that cuts the run contains its record of that moment,
//     and a later reader drops events below that record's Next. If the transaction fails, the run is whole again.

// cutLimit bounds the record of a run that is cut: an eighth of the record limit, so that the run is cheap to hold and to load
// afterwards. Small contents stay.
func (c Config) cutLimit() int { return max(c.RecordLimit/8, min(c.RecordLimit/2, 32<<10)) }

// leastCut is how much a run must hold to be cut.
func (c Config) leastCut() int { return min(1<<20, c.OpenRunBytes/16) }

// CutLargest cuts runs until those that cannot leave memory hold no more than the process and their tenants' quotas allow. The argument
// parts has the open partitions of the process. CutLargest never cuts a run of a tenant while another tenant, with a run that can be cut,
// holds more. The next transaction contains the records of the cut runs.
func CutLargest(parts []*Processor, now time.Time) error {
	for {
		held, tenants, largest := 0, map[string]int{}, map[string]*run{}
		for _, p := range parts {
			for _, r := range p.runs.byKey {
				if !r.isStuck(now) {
					continue
				}
				tenant, size := r.thread.tenant, r.size()
				held += size
				tenants[tenant] += size
				if l := largest[tenant]; r.canBeCut() && (l == nil || cmp.Or(cmp.Compare(size, l.size()), cmp.Compare(l.key, r.key)) > 0) {
					largest[tenant] = r
				}
			}
		}
		var victim *run
		for tenant, r := range largest {
			p := r.thread.p
			if limit := p.limitOf(tenant, len(parts)); held <= p.cfg.OpenRunBytes && (limit == 0 || tenants[tenant] <= limit) {
				continue
			}
			if victim == nil || cmp.Or(cmp.Compare(tenants[tenant], tenants[victim.thread.tenant]), cmp.Compare(victim.key, r.key)) > 0 {
				victim = r
			}
		}
		if victim == nil {
			return nil
		}
		if err := victim.cut(now); err != nil {
			return err
		}
	}
}

// isStuck reports whether a run cannot leave memory by being written: it was used just now, or is over the record limit.
func (r *run) isStuck(now time.Time) bool {
	return now.Sub(r.touchedAt) < busyFor || r.overLimit && !r.thread.p.runs.isWritten(r)
}

// canBeCut reports whether a cut of the run would free enough memory to be worth the loss. A run that has only an input would end instead.
func (r *run) canBeCut() bool {
	p := r.thread.p
	ends := r.Fold == nil
	return r.size() >= p.cfg.leastCut() && (!ends || r.overLimit && !p.rebuilds()) && r.cutAt == nil && !r.meta.IsExpired()
}

// limitOf returns how many bytes a tenant's open runs may take in a process with this many of the topic's partitions; 0 is no limit.
func (p *Processor) limitOf(tenant string, partitions int) int {
	quota := p.cfg.quota(tenant).OpenRunBytes
	if quota == 0 {
		return 0
	}
	return max(1, int(quota*int64(partitions)/int64(max(1, p.count)))) // a small limit must not become 0, which is none
}

// outgrown is how many record limits a run may hold. Over one limit it has no record, so it stays in memory and holds back the
// committed offset; over this many it is cut.
const outgrown = 4

// partOverhead is how many bytes a message, a tool call or an event type counts for in addition to its own.
const partOverhead = 512

// cutIfOutgrown cuts a run if its last event made it too large; bytes is the event's size. Otherwise the run could fill the memory of this
// process, and of the next one, which would fold it again.
//
// Measuring costs about as much as folding did, so it is done only when the run's events cross another multiple of the record limit. In
// between, the fold limits how much patches copy (docs/fold.md).
func (r *run) cutIfOutgrown(bytes int) error {
	limit, before := int64(r.thread.p.cfg.RecordLimit), r.eventBytes
	if r.eventBytes += int64(bytes); r.cutAt != nil || before/limit == r.eventBytes/limit {
		return nil
	}
	rec, _, err := r.describe()
	if err != nil {
		return err
	}
	if size := int64(record.LeastBytes(rec)); size <= limit || size+int64(partOverhead*parts(rec)) <= outgrown*limit {
		return nil
	}
	return r.cut(r.touchedAt)
}

// parts counts what makes a fold use memory in addition to its bytes: messages, event types and tool calls.
func parts(rec *record.Run) int {
	n := len(rec.Messages) + len(rec.Stats.Events)
	for _, calls := range rec.Stats.ToolCalls {
		n += int(calls)
	}
	return n
}

// cut replaces the largest contents of an open run by references, and makes it fold no more of them. A run that has only an input, which
// is over the record limit, ends instead.
func (r *run) cut(now time.Time) error {
	p := r.thread.p
	p.cuts = append(p.cuts, Cut{r.thread.tenant, r.thread.id, r.meta.ID, r.size()})
	if r.Fold == nil {
		return r.endEarly(p.cfg.cutEvent(), outputAbandoned, now)
	}
	r.Tally.StopCallTimes()
	rec, _, err := r.describe()
	if err != nil {
		return err
	}
	rec.InputMessages, rec.Resumes = slices.Clone(rec.InputMessages), slices.Clone(rec.Resumes)
	rec.Events, rec.Interrupts = slices.Clone(rec.Events), nil
	counted := len(rec.Stats.Events)
	value, err := record.Fit(rec, p.cfg.cutLimit())
	if err != nil {
		return err
	}
	at, err := lineage.RestoreFrom(r.origin.base.Unshare(), fold.ContentOf(rec))
	if err != nil {
		return err
	}
	r.Fold = r.Fold.Cut(at.Messages, at.State, rec.Started, rec.Events, len(rec.Stats.Events) == counted)
	r.cutAt = &record.Cut{Events: r.Tally.Events, Next: r.meta.Next}
	r.setOrigin(rec, r.origin.base)
	r.written.bytes, r.newBytes, r.overLimit = len(value), 0, false
	r.requestCheckpoint()
	p.runs.change(r)
	p.runs.recount(r)
	return r.show()
}

// cutEvent returns the terminal event of a run that had nothing but its input.
func (c Config) cutEvent() json.RawMessage {
	return agui.RunErrorOf(fmt.Sprintf("The run was ended before its first event: its input is over the record limit of %d bytes, "+
		"and open runs held too much memory.", c.RecordLimit), codeOutgrown)
}

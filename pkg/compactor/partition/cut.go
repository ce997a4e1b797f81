package partition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Open runs leave memory when they are written and idle. Active runs, and those over the record limit, stay. If such runs hold more than
// a process may, the largest run of the tenant that holds most is cut (CutLargest): references replace its largest contents, and later
// events are counted and hashed, but not folded (compact.Run.Cut).
//
// The decision depends on what else is in memory, so another process may decide differently. Nevertheless it is made only once: the
// transaction that cuts the run contains the run's record of that moment, which says so. A later reader drops events below that
// record's Next. If the transaction fails, the run is whole again.

// cutLimit bounds the record of a run that is cut: an eighth of the record limit, so that the run is cheap to hold and to load
// afterwards. Small contents stay.
func (c Config) cutLimit() int { return max(c.RecordLimit/8, 32<<10) }

// leastCut is how much a run must hold to be cut.
func (c Config) leastCut() int { return min(1<<20, c.OpenRunBytes/16) }

// Stuck is what runs of one partition hold that cannot leave memory by being written: they are spoken of, or over the record limit.
type Stuck struct {
	Bytes int
	// Tenants has the bytes of each tenant, and Largest a tenant's run that would be cut first.
	Tenants map[string]int
	Largest map[string]*run
}

// limitOf is what a tenant's open runs may hold in a process that has so many of the topic's partitions; 0 is no limit of its own.
func (p *Processor) limitOf(tenant string, partitions int) int {
	quota := p.cfg.quota(tenant).OpenRunBytes
	if quota == 0 {
		return 0
	}
	return max(1, int(quota*int64(partitions)/int64(max(1, p.count)))) // a small one is not none
}

// Stuck returns what the partition's runs hold that cannot leave memory.
func (p *Processor) Stuck(now time.Time) Stuck {
	s := Stuck{Tenants: map[string]int{}, Largest: map[string]*run{}}
	for _, r := range p.runs.byKey {
		if silent := now.Sub(r.touchedAt) >= busyFor; silent && (p.runs.isWritten(r) || !r.overLimit) {
			continue
		}
		tenant := r.thread.tenant
		s.Bytes += r.size()
		s.Tenants[tenant] += r.size()
		if r.size() < p.cfg.leastCut() || r.Fold == nil && !r.overLimit || r.rec.Cut != nil || r.meta.IsExpired() {
			continue
		}
		if l := s.Largest[tenant]; l == nil || cmp.Or(cmp.Compare(l.size(), r.size()), cmp.Compare(r.meta.Start, l.meta.Start)) < 0 {
			s.Largest[tenant] = r
		}
	}
	return s
}

// CutLargest cuts runs until those that cannot leave memory hold no more than a process may: the largest one of the tenant that holds
// most, again and again. No tenant's run is cut while another one that can be cut holds more. Runs of a tenant are also cut while those of it
// that cannot leave hold more than its quota. The next transaction has the records.
func CutLargest(parts []*Processor, now time.Time) error {
	for len(parts) > 0 {
		limit, held := parts[0].cfg.OpenRunBytes, 0
		tenants, largest := map[string]int{}, map[string]*run{}
		of := map[*run]*Processor{}
		for _, p := range parts {
			if p.runs.bytes == 0 {
				continue
			}
			s := p.Stuck(now)
			held += s.Bytes
			for tenant, bytes := range s.Tenants {
				tenants[tenant] += bytes
			}
			for tenant, r := range s.Largest {
				if l := largest[tenant]; l == nil || l.size() < r.size() {
					largest[tenant] = r
				}
				of[r] = p
			}
		}
		var victim *run
		for tenant, r := range largest {
			if quota := parts[0].limitOf(tenant, len(parts)); held <= limit && (quota == 0 || tenants[tenant] <= quota) {
				continue
			}
			if victim == nil || cmp.Or(cmp.Compare(tenants[victim.thread.tenant], tenants[tenant]), cmp.Compare(tenant, victim.thread.tenant)) < 0 {
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
	return nil
}

// cut replaces the largest contents of an open run by references, and has it fold contents no more. One that has nothing but an input, which
// is over the limit, ends.
func (r *run) cut(now time.Time) error {
	p := r.thread.p
	p.cuts = append(p.cuts, Outgrown{r.thread.tenant, r.thread.id, r.meta.ID, r.size()})
	if r.Fold == nil {
		r.ending = p.cfg.cutEvent()
		return p.expireRun(r.key, now)
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
	at, err := lineage.RestoreFrom(r.base.Unshare(), fold.ContentOf(rec))
	if err != nil {
		return err
	}
	r.Fold = r.Fold.Cut(at.Messages, at.State, rec.Started, rec.Events, len(rec.Stats.Events) == counted)
	r.rec.Cut = &record.Cut{Events: r.Tally.Events, Next: r.meta.Next}
	r.rec.Input, r.rec.InputMessages, r.rec.InputLayout, r.rec.Resumes = rec.Input, rec.InputMessages, rec.InputLayout, rec.Resumes
	r.written.bytes, r.newBytes, r.overLimit = len(value), 0, false
	r.requestCheckpoint()
	p.runs.change(r)
	p.runs.recount(r)
	return r.show()
}

// cutEvent ends a run that had nothing but its input.
func (c Config) cutEvent() json.RawMessage {
	return runError(fmt.Sprintf("The run was ended before its first event: its input is over the record limit of %d bytes, and open runs held too much memory.", c.RecordLimit), codeOutgrown)
}

package partition

import (
	"fmt"
	"time"
)

// maxEndedAtOnce is how many runs of a tenant end for one that begins: two, so that a quota that was lowered is met before long.
const maxEndedAtOnce = 2

// endOverQuota ends runs of a tenant that has more than its quota, after a record that began one. An open or expired run takes memory for as long
// as events may come for it, which is a week after it expired: a tenant that begins runs and ends none would fill any memory. First to go are
// expired runs, the one that expired first, then the open one that was silent longest. Its record says so; later events are treated as after any
// terminal event.
//
// Like closing by the clock, it is decided once, by a record in the same transaction as the processed offset.
func (p *Processor) endOverQuota(began *run, m *message) error {
	quota := p.cfg.quota(began.thread.tenant).OpenRuns
	if quota == 0 || m.rebuilds {
		return nil
	}
	of, share := tenantOf(began.key), max(1, int(quota)/max(1, int(p.count)))
	for n := 0; n < maxEndedAtOnce && p.closing.countOf(of)+p.expiring.countOf(of) > share; n++ {
		w := p.closing.oldestOf(of)
		if w == nil {
			w = p.expiring.oldestOf(of)
		}
		if err := p.endForQuota(w.key, quota, m.now); err != nil {
			return err
		}
	}
	return nil
}

// endForQuota closes one run of a tenant that may have so many.
func (p *Processor) endForQuota(key string, quota int64, now time.Time) error {
	r, err := p.loadByKey(key, now)
	if err != nil {
		return err
	}
	if !r.meta.isExpired() {
		r.ending = runError(fmt.Sprintf("The run was ended, as its tenant has more than %d open runs: no other one was silent for longer.", quota), codeOverQuota)
		if err := p.expireLoaded(r, now); err != nil {
			return err
		}
	}
	out, err := p.close(r, outputOverQuota)
	if err != nil {
		return err
	}
	p.write(*out)
	return nil
}

package partition

import (
	"fmt"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
)

// maxEndedAtOnce is how many runs of a tenant end for one that begins: two, so that a quota that was lowered is met before long.
const maxEndedAtOnce = 2

// endOverQuota ends runs of a tenant that has more than its quota, after a record began one. An open or expired run takes memory until it
// is closed, a week after it expired, so a tenant that begins runs and ends none would fill any memory. It closes the run that expired
// first or, if there is none, ends the open run that was idle longest, with a terminal event that names the quota. Later events count as
// after any terminal event.
//
// Like closing by the clock, it is decided once, by a record in the same transaction as the processed offset.
func (e *retirement) endOverQuota(began *run, m *message) error {
	quota := e.p.cfg.quota(began.thread.tenant).OpenRuns
	if quota == 0 || m.rebuilds {
		return nil
	}
	of, part := tenantOf(began.key), partOf(quota, int(e.p.count))
	for n := 0; n < maxEndedAtOnce && int64(e.closing.countOf(of)+e.expiring.countOf(of)) > part; n++ {
		w := e.closing.oldestOf(of)
		if w == nil {
			w = e.expiring.oldestOf(of)
		}
		if err := e.endForQuota(w.key, part, quota, m.now); err != nil {
			return err
		}
	}
	return nil
}

// partOf returns each partition's part of a quota of open runs.
func partOf(quota int64, partitions int) int64 { return max(1, quota/int64(max(1, partitions))) }

// leastPart is the smallest part of a quota, in open runs, for which Remark returns no warning.
const leastPart = 10

// Remark returns a warning if each partition's part of the quota is small, else "". All runs of a thread are on one partition, and
// threads do not spread evenly.
func (q Quota) Remark(partitions int) string {
	part := partOf(q.OpenRuns, partitions)
	if q.OpenRuns == 0 || part >= leastPart {
		return ""
	}
	return fmt.Sprintf("open_runs is %d, of which each of the %d partitions allows %d: "+
		"runs end long before the tenant has as many; allow %d or more", q.OpenRuns, partitions, part, leastPart*partitions)
}

// endForQuota ends one run of a tenant over its quota. The argument part is the partition's part of the quota.
func (e *retirement) endForQuota(key string, part, quota int64, now time.Time) error {
	r, err := e.p.loadByKey(key, now)
	if err != nil {
		return err
	}
	return r.endEarly(agui.RunErrorOf(fmt.Sprintf("The run was ended, as its tenant has more than %d open runs on this partition, "+
		"its part of %d: no other one there was silent for longer.", part, quota), codeOverQuota), outputOverQuota, now)
}

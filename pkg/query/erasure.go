package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// These are the states of an erasure.
const (
	// erasurePending: readers may still receive data from below the erasure.
	erasurePending = "pending"
	// erasureDone: the compactor has removed the thread's records and the index has followed. No reader receives data of
	// the thread from below the erasure any more.
	erasureDone = "done"
)

// erasureAnswer describes the progress of an erasure.
type erasureAnswer struct {
	ThreadID string          `json:"threadId"`
	Position record.Position `json:"position"`
	State    string          `json:"state"`
	// RequestedAt is the time of the erasure's record on skein.events.
	RequestedAt time.Time `json:"requestedAt"`
	// ErasedAt is when the compactor last removed the data that it had derived from the thread; a later erasure of the
	// thread replaces it. It is absent before that, and if an older compactor found nothing to remove.
	ErasedAt *time.Time `json:"erasedAt,omitempty"`
	// LocalPurgedBy is the time by which the compactor, if it runs without a break, has removed the bytes from the files
	// of its local store. It is absent as long as ErasedAt is.
	LocalPurgedBy *time.Time `json:"localPurgedBy,omitempty"`
	// CompactedBy and RawGoneBy are the times by which Kafka's brokers must have dropped the bytes: CompactedBy for
	// derived topics, RawGoneBy for raw events and dead letters. They are absent as long as ErasedAt is, if the topics set
	// no bound, and if the brokers do not disclose their settings.
	CompactedBy *time.Time `json:"compactedBy,omitempty"`
	RawGoneBy   *time.Time `json:"rawGoneBy,omitempty"`
	// IndexPurged: the index has removed the bytes too. Until then it hides them from every reader.
	IndexPurged bool            `json:"indexPurged"`
	IndexedTo   record.Position `json:"indexedTo"`
}

// everyTenant is the name of a tenant without rows. The index's progress for it is the progress for all tenants.
const everyTenant = ""

// erasure answers with the progress of an erasure. With ?wait=true it answers when the erasure is done, or after
// cfg.Wait.
func (c *call) erasure() (*answer, error) {
	at, err := record.ParsePosition(c.R.PathValue("position"))
	if err != nil {
		return nil, badRequest("the position in the path: %v", err)
	}
	wait, err := c.flag("wait")
	if err != nil {
		return nil, err
	}
	asked, err := c.erasureAt(at)
	if err != nil {
		return nil, err
	}
	if asked.tenant != c.Tenant {
		return nil, store.ErrNotFound
	}
	a := erasureAnswer{ThreadID: asked.thread, Position: at, State: erasurePending, RequestedAt: asked.time}
	deadline := time.Now()
	if wait {
		deadline = deadline.Add(c.cfg.Wait)
	}
	// The position is read before the erasure, so that the erasure is at least as new. If an older compactor found
	// nothing, no erasure is stored, but the partition's position shows that the compactor has processed the request. The
	// tenant's own rows must not count: one of another thread may be indexed before the erased rows are gone.
	for look := c.cfg.Poll; ; look = min(2*look, maxLook) {
		to, err := c.store.IndexedTo(c.R.Context(), everyTenant)
		if err != nil {
			return nil, err
		}
		e, err := c.store.Erasure(c.R.Context(), c.Tenant, asked.thread)
		known := err == nil
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if asked.unsigned && !(known && e.Below > at.Offset) { // one from before signatures were required has erased
			return nil, store.ErrNotFound
		}
		a.IndexedTo = record.Position{Partition: at.Partition, Offset: max(to[at.Partition]-1, 0)}
		if known && e.Below > at.Offset || to[at.Partition] > at.Offset {
			a.State = erasureDone
			if a.IndexPurged, err = c.store.Purged(c.R.Context(), c.Tenant, asked.thread); err != nil {
				return nil, err
			}
			if known {
				a.ErasedAt = &e.At
				a.LocalPurgedBy = bound(record.ErasedLocallyWithin).after(e.At)
				a.CompactedBy = asked.bounds.derived.after(e.At)
				a.RawGoneBy = asked.bounds.raw.after(e.At)
			}
		}
		if a.State == erasureDone || !time.Now().Before(deadline) {
			return &answer{body: document(a)}, nil
		}
		if err := c.sleep(c.R.Context(), min(look, time.Until(deadline))); err != nil {
			return nil, err
		}
	}
}

// askedErasure is an erasure's record on skein.events.
type askedErasure struct {
	tenant, thread string
	time           time.Time
	bounds         erasureBounds
	unsigned       bool // ingest must have signed it and has not
}

// erasureAt reads the record of an erasure, of any tenant. It returns store.ErrNotFound if the record at that position
// is no erasure.
func (c *call) erasureAt(at record.Position) (askedErasure, error) {
	ctx := c.R.Context()
	r, err := c.openRaw(at.Partition)
	if errors.Is(err, kafka.ErrNoPartition) {
		return askedErasure{}, store.ErrNotFound
	}
	if err != nil {
		return askedErasure{}, err
	}
	defer r.close()
	if at.Offset < r.start {
		return askedErasure{}, &front.Problem{Status: http.StatusGone, Detail: fmt.Sprintf("the record at %s is older than the retention of skein.events, and so is everything before it", at)}
	}
	if at.Offset >= r.end {
		// An open transaction, for example of a retry of dead letters, hides the records after it.
		end, err := r.ask(ctx, kafka.Latest)
		if err == nil && at.Offset < end {
			err = later(fmt.Sprintf("the record at %s cannot be read yet; try again", at))
		}
		if err == nil {
			err = store.ErrNotFound
		}
		return askedErasure{}, err
	}
	var found *kgo.Record
	err = r.each(ctx, [][2]int64{{at.Offset, at.Offset + 1}}, func(m *kgo.Record) error {
		if m.Offset == at.Offset {
			found = m
		}
		return nil
	})
	if err != nil {
		return askedErasure{}, err
	}
	if found == nil {
		return askedErasure{}, refuseEpoch(at)
	}
	h, err := record.ParseHeaders(found.Headers)
	if err != nil || h.Kind != record.KindErase {
		return askedErasure{}, store.ErrNotFound
	}
	parts, err := record.SplitKey(string(found.Key))
	if err != nil || len(parts) != 2 {
		return askedErasure{}, store.ErrNotFound
	}
	asked := askedErasure{tenant: parts[0], thread: parts[1], time: found.Timestamp.UTC().Truncate(time.Millisecond),
		unsigned: r.log.cfg.IngestKeys.Refuses(found)}
	err = c.load.pause(ctx, func() error {
		asked.bounds = r.erasureBounds(ctx)
		return nil
	})
	return asked, err
}

// bound is a duration within which something happens; a negative one means no bound.
type bound time.Duration

func (b bound) after(t time.Time) *time.Time {
	if b < 0 {
		return nil
	}
	t = t.Add(time.Duration(b))
	return &t
}

// erasureBounds are the longest times that brokers keep the bytes of an erased thread: on derived topics until they are
// compacted; as raw events and dead letters until their segment is closed and its retention has passed.
type erasureBounds struct{ derived, raw bound }

func (r *rawRead) erasureBounds(ctx context.Context) erasureBounds {
	ctx, cancel := context.WithTimeout(ctx, recordWait)
	defer cancel()
	t := r.log.cfg.Topics()
	settings, err := kafka.TopicSettings(ctx, r.admin(), t.All()...)
	if err != nil { // a client may lack permission to read them
		return erasureBounds{-1, -1}
	}
	sum := func(topic string, keys ...string) bound {
		var total float64 // Kafka's "never" is the greatest int64
		for _, key := range keys {
			ms, err := strconv.ParseInt(settings[topic][key], 10, 64)
			if err != nil || ms < 0 {
				return -1
			}
			total += float64(ms) * float64(time.Millisecond)
		}
		if total > math.MaxInt64/2 {
			return -1
		}
		return bound(total)
	}
	longer := func(a, b bound) bound {
		if a < 0 || b < 0 {
			return -1
		}
		return max(a, b)
	}
	const lag, retention, segment = "max.compaction.lag.ms", "retention.ms", "segment.ms"
	return erasureBounds{
		derived: longer(sum(t.Runs, lag), sum(t.Snapshots, lag)),
		raw:     longer(sum(t.Events, retention, segment), sum(t.DeadLetters, retention, segment)),
	}
}

package partition

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compactor/runstore"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/verify"
)

// A request to refold a thread (skein refold --apply) rewrites its records if the current rules of the fold give others. The main loop
// finds the request in the thread's partition, reads the thread's raw events at once, and puts all changed records into the
// transaction that moves the processed offset past the request: meanwhile no run of the thread can begin or continue. ADR 008
// tells what it would take to do so beside the main loop, or for threads with open runs.

// RefoldRequest is a refold request that waits for the thread's raw events to be read.
type RefoldRequest struct {
	// Tenant, ThreadID and Key name the thread: Key is that of its records on skein.events.
	Tenant, ThreadID, Key string
	// Offset is that of the request.
	Offset int64
	// Ranges are where the thread's raw events lie, in order.
	Ranges []kafka.Span
	// Refused is the reason for which the request is refused; nil: it is not, so far.
	Refused error
	thread  *thread
	records []*record.Run
}

// refoldMessages bounds the messages in memory for one request, in the histories with which the thread's runs end, before and after:
// about 100 bytes each. A run that only adds to its base shares that list, and counts with what it adds. Bytes of records and of raw
// events are bounded by Config.RefoldBytes; what is scanned to find them by the session, as the stage pauses for it.
const refoldMessages = 512 << 10

// The reasons for which a request is refused.
var (
	errThreadOpen  = errors.New("a run of the thread is open, or was a moment ago: try again")
	ErrThreadLarge = errors.New("the thread is larger than what is folded again at once")
	errRecordLarge = errors.New("a record would be over the limit")
)

// takeRefold notes a request. Below the processed offset it was done.
func (p *Processor) takeRefold(t *thread, m *message) (fold.Outcome, error) {
	if m.rebuilds {
		return outcomeRefold, nil
	}
	if t.loader != nil {
		if err := t.loader.all(); err != nil {
			return "", err
		}
	}
	if len(t.runs) == 0 {
		return outcomeRefold, nil
	}
	p.refolding = &RefoldRequest{Tenant: t.tenant, ThreadID: t.id, Key: t.key, Offset: m.Offset, thread: t}
	return outcomeRefold, p.prepare(p.refolding)
}

// mayBeRefoldRequest reports whether a record may be a request, by its headers.
func mayBeRefoldRequest(m *kgo.Record) bool {
	return !m.Attrs.IsControl() && slices.ContainsFunc(m.Headers, func(h kgo.RecordHeader) bool {
		return h.Key == record.HeaderKind && string(h.Value) == string(record.KindRefold)
	})
}

// BeginRefold processes the record before which Process has stopped. It returns the request that has to be finished
// before anything else is processed, or nil if there is nothing to do for this record.
func (p *Processor) BeginRefold(m *kgo.Record, now time.Time) (*RefoldRequest, error) {
	p.refolding = nil
	err := p.process(m, now)
	return p.refolding, err
}

// prepare reads the thread's records and finds where its raw events lie.
func (p *Processor) prepare(r *RefoldRequest) error {
	var parts [][2]int64
	size, messages := 0, 0
	continued := map[string]bool{} // runs that another one adds to
	for _, h := range slices.SortedFunc(maps.Values(r.thread.runs), func(a, b *threadRun) int { return cmp.Compare(a.Start, b.Start) }) {
		// An expired run leaves memory once its record is committed.
		if h.live != nil || h.Open() {
			r.Refused = errThreadOpen
			return nil
		}
		key, err := record.RunKey(r.thread.tenant, r.thread.id, h.ID)
		if err != nil {
			return fmt.Errorf("refolding a thread: %w", err)
		}
		rec, n, err := p.recordOf(key)
		if err != nil {
			return err
		}
		own := rec.MessageCount
		if base := r.thread.runs[rec.Base]; base != nil && !continued[base.ID] && len(rec.Layout) == 0 && base.MessageCount+len(rec.Messages) == own {
			own, continued[base.ID] = len(rec.Messages), true
		}
		size, messages = size+n, messages+own
		if size > p.cfg.RefoldBytes || messages > refoldMessages {
			r.Refused = ErrThreadLarge
			return nil
		}
		r.records = append(r.records, rec)
		parts = append(parts, rec.Raw.Ranges...)
	}
	slices.SortFunc(parts, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var all record.Ranges // as few as a record has: each costs a read
	for _, part := range parts {
		all.AddRange(part)
	}
	for _, part := range all.List() {
		r.Ranges = append(r.Ranges, kafka.Span{Start: part[0], End: part[1]})
	}
	return nil
}

// FinishRefold writes the records of the request's thread again. raw are the thread's records of skein.events in the
// request's ranges, and logStart is the first offset that skein.events still has. It returns how many records that are,
// or why (refused) there are none.
func (p *Processor) FinishRefold(r *RefoldRequest, raw []*kgo.Record, logStart int64) (written int, refused, err error) {
	again := verify.NewRewriter(r.records, logStart)
	for _, m := range raw {
		e, ok, err := kafka.RunEvent(m, record.Headers{})
		if ok {
			err = again.Take(e)
		}
		if err != nil {
			return 0, nil, err
		}
	}
	anew, err := again.Rewrite()
	switch {
	case errors.Is(err, verify.ErrUnchanged):
		return 0, err, nil
	case err != nil || len(anew) == 0:
		return 0, nil, err
	}
	values := make([][]byte, len(anew))
	for i, a := range anew {
		if values[i], err = record.EncodeRun(a.Record); err != nil {
			return 0, nil, err
		}
		if len(values[i]) > p.cfg.RecordLimit {
			return 0, fmt.Errorf("%w: run %q", errRecordLarge, a.Record.RunID), nil
		}
	}
	t := r.thread
	runs := maps.Clone(t.runs)
	whole := map[string]*threadRun{} // by branch: the run at whose end it was written whole
	for _, h := range t.runs {
		if last := whole[h.Branch]; h.Sealed && h.SinceSnapshot == 0 && (last == nil || h.Depth > last.Depth) {
			whole[h.Branch] = h
		}
	}
	for i, a := range anew {
		key, err := record.RunKey(t.tenant, t.id, a.Record.RunID)
		if err != nil {
			return 0, nil, err
		}
		m, err := runstore.MetadataOf(a.Record)
		if err != nil {
			return 0, nil, err
		}
		h := &threadRun{Metadata: *m}
		runs[h.ID] = h
		p.unsaved.put(t.key, key, values[i], h.End, a.Record.Messages)
		out, err := p.runOutput(key, a.Record, values[i], outputRefolded)
		if err != nil {
			return 0, nil, err
		}
		p.write(*out)
		p.histories.drop(key)
		if whole[h.Branch] != t.runs[h.ID] || sameHistory(a.Was, a.Is) {
			continue
		}
		if err := p.snapshot(t, h, a.Is); err != nil {
			return 0, nil, err
		}
	}
	next, err := p.newThread(t.key, t.tenant, t.id, slices.Collect(maps.Values(runs)))
	if err != nil {
		return 0, nil, err
	}
	next.erased, next.usedAt = t.erased, t.usedAt
	p.threads[t.key] = next
	return len(anew), nil, nil
}

// sameHistory reports whether two histories are written the same.
func sameHistory(a, b lineage.History) bool {
	return bytes.Equal(a.State, b.State) && slices.EqualFunc(a.Messages, b.Messages, func(x, y agui.Message) bool {
		return bytes.Equal(x.Raw, y.Raw)
	})
}

package partition

import (
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// resolution is a run's parent resolution, which its first event makes final: its lineage and the history that its fold starts
// from.
type resolution struct {
	lineage.Placement
	input  *agui.RunAgentInput // as recorded
	parent lineage.History
	// base is the history that the run's messages are encoded relative to; empty without a base.
	base lineage.History
	fold *compact.Run
	// before is the run as it was before that event: see resolutionRecord.
	before pending
}

// pending is a run as it was before its first event.
type pending struct {
	fold.Run
	ranges [][2]int64
	next   int64
	// first is that event's offset, at the stream time then.
	first int64
	at    time.Time
}

func (r *run) pending(first int64, at time.Time) pending {
	before := *r.Run
	before.Seq = before.Seq.Clone()
	return pending{Run: before, ranges: r.ranges.List(), next: max(r.meta.Next, r.meta.Start), first: first, at: at}
}

// resolve returns a run's resolution as of an offset, or the one that its record has; it changes nothing. ev is the run's first
// event, or nil for a preliminary resolution of a pending run, and input the run's input by then, or nil.
func (p *Processor) resolve(r *run, ev *agui.Event, input *agui.RunAgentInput, offset int64) (*resolution, error) {
	pl := &resolution{}
	if r.resolution != nil {
		*pl = *r.resolution
	}
	pl.input = input
	if r.resolution == nil {
		if err := p.resolveAmong(r, pl, ev, offset); err != nil {
			return nil, err
		}
	} else if pl.Run.Parent != "" { // its end needs the parent: see sinceSnapshot
		if err := r.thread.load(pl.Run.Parent, r.meta.Start); err != nil {
			return nil, err
		}
	}
	by := pl.Run.ParentBy
	pl.Run.HasInput = pl.input != nil && !lineage.Normalised(by, pl.parent, pl.input)
	pl.fold, pl.input = fold.Start(r.meta.ID, by, pl.parent, pl.input, p.cfg.KeepEvents)
	return pl, nil
}

// resolveAmong chooses a run's parent, branch and base among the runs of its thread.
func (p *Processor) resolveAmong(r *run, pl *resolution, ev *agui.Event, offset int64) (err error) {
	start := lineage.Start{RunID: r.meta.ID, ClientID: r.meta.ClientRunID(), Offset: offset, Input: pl.input}
	if ev != nil && ev.Type == agui.RunStarted {
		start.ParentRunID = ev.ParentRunID
	}
	if pl.input != nil && start.ParentRunID == "" {
		start.ParentRunID = pl.input.ParentRunID
	}
	if pl.Placement, err = r.thread.lineage.Place(start); err != nil || pl.Run.Parent == "" {
		return err
	}
	if pl.parent, err = p.history(r.thread, pl.Run.Parent); err != nil {
		return err
	}
	if pl.Run.Base != "" {
		pl.base = pl.parent
		return nil
	}
	// A resolution record has to hold what the run takes over, beside an input that came before its first event.
	if !p.cfg.fits(pl.parent, r.Input) {
		pl.parent = lineage.History{}
		pl.Anomalies = append(pl.Anomalies, lineage.AnomalyPlacedAlone)
	}
	return nil
}

// fits reports whether a record has room for a history and an input, by their size as a record encodes them: so it makes no difference
// whether they come from one.
func (c Config) fits(at lineage.History, input *agui.RunAgentInput) bool {
	room := c.RecordLimit * 7 / 8
	bytes := at.Bytes() + len(at.State)
	if input != nil {
		bytes += len(input.Raw)
	}
	if bytes <= room { // a record does not make them larger
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

// decide makes a resolution the run's own.
func (p *Processor) decide(r *run, pl *resolution) error {
	h := r.meta
	h.open(pl.Run, r.rec.RawLost)
	pl.describe(&r.rec, r.InputSHA256)
	r.Early, r.Input, r.base = nil, nil, pl.base
	r.rec.Kept = p.cfg.KeepEvents
	if r.resolution != nil { // from its record
		r.resolution = nil
	} else {
		r.resolution = &resolution{Placement: pl.Placement, parent: pl.parent, base: pl.base, before: pl.before}
	}
	if pl.Concurrent || r.thread.hasOtherUnsealed(h) {
		p.writeUnsealed(r.thread)
	}
	r.isBasedOn(pl.parent)
	return r.show()
}

// describe sets lineage and input in a record, with the input's hash.
func (pl *resolution) describe(rec *record.Run, inputSHA256 string) {
	rec.Lineage, rec.Base = fold.RecordLineage(pl.Run), pl.Run.Base
	fold.FillInput(rec, pl.parent, pl.base, pl.input, inputSHA256)
}

// resolutionOf is the resolution in a record of the resolution alone.
func (p *Processor) resolutionOf(t *thread, h *threadRun, rec *record.Run) (*resolution, error) {
	pl := &resolution{}
	pl.Run = h.Run
	pl.Run.End, pl.Run.Status, pl.Run.Synthetic = -1, lineage.StatusRunning, false
	if rec.Base == "" {
		at, err := lineage.Restore(contentOf(rec))
		pl.parent = at
		return pl, err
	}
	var err error
	pl.base, err = p.history(t, rec.Base)
	pl.parent = pl.base
	return pl, err
}

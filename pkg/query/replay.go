package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/replay"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/tenant"
	"github.com/skeinhq/skein/pkg/verify"
)

// These are the outcomes in a replay with all=true besides those of package fold.
const (
	// outcomeAhead: no record includes the event yet, as its run is open.
	outcomeAhead fold.Outcome = "ahead"
	// outcomeUnknown: the run had repeats or malformed events, and its first events are gone.
	outcomeUnknown fold.Outcome = "unknown"
	// outcomeOther: the event belongs to a run that was not requested. It is not returned.
	outcomeOther fold.Outcome = ""
)

// rawReplay selects raw events of a thread: those that were folded into its runs and their late errors or, if all is set, every one.
type rawReplay struct {
	recorded *fold.Table[*fold.Metadata]
	wanted   map[string]*replayRun // by run id
	late     map[int64]string      // the run id of each late error, by offset
	from, to int64
	all      bool
	// types are the event types to return; none means all.
	types []agui.Type
	// whole: every run of the thread was requested, so events without a run are returned too.
	whole bool

	decoded fold.Decoded // the last record
}

// replayRun is a run of a replay.
type replayRun struct {
	*fold.Outcomes
	// cut: the run is not steady and its first records have expired, so outcomes are unknown.
	cut bool
}

// replayed is one record of a replay.
type replayed struct {
	record.Event
	runID   string
	outcome fold.Outcome
}

// replayEvents answers with the raw events of a run, a branch or a thread.
func (c *call) replayEvents() error {
	pace, err := c.pace()
	if err != nil {
		return err
	}
	all, err := c.flag("all")
	if err != nil {
		return err
	}
	types, err := c.types()
	if err != nil {
		return err
	}
	v, err := c.readInTime()
	if err != nil {
		return err
	}
	runs, err := c.replayRuns(v.runs)
	if err != nil {
		return err
	}
	rp := &rawReplay{types: types, recorded: fold.TableOf(recordsOf(v.runs)), wanted: map[string]*replayRun{}, late: map[int64]string{},
		all: all, whole: len(runs) == len(v.runs)}
	raw, err := c.openRaw(v.indexedTo.Partition)
	if err != nil {
		return err
	}
	defer raw.close()
	if rp.from, rp.to, err = c.bounds(raw); err != nil {
		return err
	}
	var ranges [][2]int64
	folds := int64(0) // memory for the runs that must be folded, in bytes
	for _, r := range runs {
		run := &replayRun{Outcomes: fold.NewOutcomes(&r.Run)}
		rp.wanted[r.RunID] = run
		if r.LateError != nil {
			rp.late[r.LateError.Offset] = r.RunID
		}
		run.cut = all && !run.Steady() && r.Raw.First < raw.start
		from := rp.from
		if !run.Steady() && !run.cut {
			from = 0
		}
		before := len(ranges)
		if all {
			ranges = append(ranges, [2]int64{max(r.Raw.First, from), rp.to})
		} else {
			for _, part := range r.Places() {
				if part = [2]int64{max(part[0], from), min(part[1], rp.to)}; part[0] < part[1] && lastEvent(&r.Run).Offset >= rp.from {
					ranges = append(ranges, part)
				}
			}
		}
		if !run.Steady() && !run.cut && len(ranges) > before {
			folds += verify.Bytes(&r.Run) / 2 // half: verify.Bytes counts a fold and its comparison
		}
		if first := r.Raw.First; len(r.Raw.Ranges) == record.MaxRanges && first >= raw.start { // it shows whether ingest signed the run
			ranges = append(ranges, [2]int64{first, first + 1})
		}
	}
	if err := c.load.hold(folds); err != nil {
		return err
	}
	defer func() { _ = c.load.hold(-folds) }() // a release never fails
	ranges = fold.MergeRanges(ranges)
	if len(ranges) > 0 && (ranges[0][0] < raw.start || ranges[len(ranges)-1][1] > raw.end) {
		return rp.gone(raw, ranges)
	}
	out := newReplayWriter(c)
	c.W.Header().Set(headerIndexedTo, v.indexedTo.String())
	out.start()
	if c.R.Method == http.MethodHead {
		return nil
	}
	// A replay lasts as long as its caller likes, and many without a pace would occupy all processors. So folding and
	// writing into the buffer take a slot. While the replay waits for brokers, its pace or its caller, it holds none.
	c.load.releaseSlot()
	defer c.load.releaseSlot()
	c.load.lateAfter, c.load.late = replayAlive, out.alive
	raw.waits = func() { _ = out.flush() } // the next write fails, too
	return c.stream(c.eachOfThread(raw, ranges, func(e record.Event) error {
		if err := c.load.acquire(c.R.Context()); err != nil {
			return err
		}
		taken, ok, err := rp.take(e)
		if !ok || err != nil {
			return err
		}
		if err := pace.wait(c.R.Context(), e.Time, out); err != nil {
			return err
		}
		return out.write(taken)
	}), out)
}

// replayRuns returns the requested runs.
func (c *call) replayRuns(all []store.Run) ([]store.Run, error) {
	if c.runID != "" {
		i := slices.IndexFunc(all, func(r store.Run) bool { return r.RunID == c.runID })
		if i < 0 {
			return nil, store.ErrNotFound
		}
		return all[i : i+1], nil
	}
	branch := c.Query.Get("branch")
	if branch == "" {
		return all, nil
	}
	var runs []store.Run
	for _, r := range all {
		if r.BranchID == branch {
			runs = append(runs, r)
		}
	}
	if len(runs) == 0 {
		if err := c.checkErased(c.Call, -1); err != nil {
			return nil, err
		}
		return nil, &front.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no branch %q in this thread; a branch's id is its first run's", branch)}
	}
	return runs, nil
}

// recordsOf returns the records of rows.
func recordsOf(runs []store.Run) []*record.Run {
	out := make([]*record.Run, len(runs))
	for i := range runs {
		out[i] = &runs[i].Run
	}
	return out
}

// bounds returns the requested range of offsets. Its end is exclusive and at most the current end of the log.
func (c *call) bounds(raw *rawRead) (from, to int64, err error) {
	to = raw.end
	if text := c.Query.Get("from"); text != "" {
		if from, err = c.offset(raw, "from", text); err != nil {
			return 0, 0, err
		}
	}
	if text := c.R.Header.Get("Last-Event-ID"); text != "" && wantsEvents(c.R) {
		if from, err = c.offset(raw, "Last-Event-ID", text); err != nil {
			return 0, 0, err
		}
		from++
	}
	if text := c.Query.Get("to"); text != "" {
		at, err := c.offset(raw, "to", text)
		if err != nil {
			return 0, 0, err
		}
		to = min(to, at)
	}
	return from, to, nil
}

// offset reads one end of a range. The word start is offset 0, not the start of the log, so that expired events are
// reported.
func (c *call) offset(raw *rawRead, name, text string) (int64, error) {
	p, err := record.ParsePoint(text)
	switch {
	case err != nil:
		return 0, badRequest("%s must be a position such as 3:1024, a time such as @2026-09-17T12:00:00Z, start or end, not %q", name, text)
	case p.Start:
		return 0, nil
	case p.End:
		return raw.end, nil
	case p.Position == nil:
		return raw.at(c.R.Context(), p.At)
	case p.Position.Partition != raw.partition:
		return 0, badRequest("%s names partition %d, but this thread lies on partition %d", name, p.Position.Partition, raw.partition)
	}
	return p.Position.Offset, c.checkErased(c.Call, p.Position.Offset)
}

// gone returns the refusal for ranges that are no longer complete in the log.
func (rp *rawReplay) gone(raw *rawRead, ranges [][2]int64) error {
	r := &front.Problem{Status: http.StatusGone, Detail: "the raw events are older than skein.events keeps them; the history is kept: ask for the history"}
	if at := raw.earliest(ranges); at >= 0 {
		earliest := record.Position{Partition: raw.partition, Offset: at}
		r.Members = map[string]any{"earliest": earliest}
		r.Detail = fmt.Sprintf("the first of these raw events are gone: they are older than the retention of skein.events. The rest begins at %s: request it with from=%s", earliest, earliest)
		for _, run := range rp.wanted {
			if !run.Steady() {
				r.Detail += " and all=true, as repeats cannot be recognised without the first ones"
				break
			}
		}
	}
	return r
}

// take processes the thread's next record; ok is false if it is not to be returned.
func (rp *rawReplay) take(e record.Event) (_ replayed, ok bool, err error) {
	rp.decoded.Reset(&e)
	runID, outcome, err := rp.outcome(&rp.decoded)
	if err != nil || outcome == outcomeOther {
		return replayed{}, false, err
	}
	in := e.Offset >= rp.from && e.Offset < rp.to
	return replayed{e, runID, outcome}, in && (rp.all || outcome == fold.Folded || outcome == fold.LateError) && rp.ofType(), nil
}

// ofType reports whether the last record has one of the requested types.
func (rp *rawReplay) ofType() bool {
	if len(rp.types) == 0 {
		return true
	}
	ev := rp.decoded.Payload()
	return ev != nil && slices.Contains(rp.types, ev.Type)
}

// types reads the requested event types from a comma-separated list. Without the parameter it returns none.
func (c *call) types() ([]agui.Type, error) {
	if !c.Query.Has("types") {
		return nil, nil
	}
	var types []agui.Type
	for t := range strings.SplitSeq(c.Query.Get("types"), ",") {
		if t == "" {
			return nil, c.badParam("types", "types of event, separated by commas, such as TOOL_CALL_START,TOOL_CALL_RESULT")
		}
		types = append(types, agui.Type(t))
	}
	return types, nil
}

// outcome returns the run and the outcome of a record.
func (rp *rawReplay) outcome(d *fold.Decoded) (runID string, _ fold.Outcome, err error) {
	if run, ok := rp.late[d.Offset]; ok {
		return run, fold.LateError, nil
	}
	of := rp.recorded.Of(d)
	if of != nil && rp.leavesOut(of, d) {
		of = nil
	}
	if of == nil && rp.whole {
		return "", fold.NoRun, nil
	}
	if of == nil || rp.wanted[of.ID] == nil {
		return "", outcomeOther, nil
	}
	run, outcome := rp.wanted[of.ID], outcomeUnknown
	switch {
	case d.Offset >= of.Next && of.Sealed:
		outcome = fold.Late
	case d.Offset >= of.Next:
		outcome = outcomeAhead
	case run.cut && d.Headers.Kind == record.KindInput:
		outcome = fold.Input
	case run.cut:
	case run.Steady() && d.Headers.Synthetic && d.Malformed() != nil:
		err = fmt.Errorf("%w: event %s is malformed, and its run's record counts none", errBroken, d.Position())
	default:
		outcome, err = run.Of(d)
	}
	return of.ID, outcome, err
}

// leavesOut reports whether a run does not include a record that names it: its record says so, or the compactor refuses what ingest has not
// signed.
func (rp *rawReplay) leavesOut(of *fold.Metadata, d *fold.Decoded) bool {
	if d.Offset >= of.Next {
		return d.Signature == record.SignatureWrong
	}
	run := rp.wanted[of.ID]
	return run != nil && run.LeavesOut(d)
}

// stream ends a response whose header was sent. A failure can only be reported by cutting off the response.
func (c *call) stream(err error, out *replayWriter) error {
	if err == nil {
		err = out.flush()
	}
	if err == nil {
		return nil
	}
	if tenant.Revoked(c.R.Context()) {
		_ = out.comment(tenant.ErrRevoked.Error()) // fails only if the caller has left
	} else if c.R.Context().Err() == nil && !errors.Is(err, errCaller) {
		c.cfg.Logger.ErrorContext(c.R.Context(), "replay broken off",
			"tenant", c.Tenant, "thread_id", c.threadID, "run_id", c.runID, "error", err)
	}
	panic(http.ErrAbortHandler)
}

// These bound a replay's pace. A pause is cut to maxPause, because a replay holds a connection to Kafka and a run may
// have waited days for its user.
const (
	minPace, maxPace replay.Pace = 0.001, 1000
	maxPause                     = time.Minute
)

// pacer reproduces the pauses between events, at the requested pace.
type pacer struct {
	pace replay.Pace
	last time.Time
}

func (c *call) pace() (*pacer, error) {
	text := cmp.Or(c.Query.Get("pace"), "max")
	pace, err := replay.ParsePace(text)
	if err != nil {
		return nil, c.badParam("pace", "max, recorded or a factor above zero such as 2 or 0.5")
	}
	if pace != 0 && (pace < minPace || pace > maxPace) {
		return nil, c.badParam("pace", fmt.Sprintf("max, recorded or a factor from %v to %v", minPace, maxPace))
	}
	return &pacer{pace: pace}, nil
}

// wait waits until an event is due, measured from the event before it. The argument at is the event's time.
func (p *pacer) wait(ctx context.Context, at time.Time, out *replayWriter) error {
	gap := at.Sub(p.last)
	first := p.last.IsZero()
	if at.After(p.last) {
		p.last = at
	}
	pause := min(p.pace.Pause(gap), maxPause)
	if first || pause == 0 {
		return nil
	}
	if err := out.flush(); err != nil {
		return err
	}
	out.c.load.releaseSlot()
	for ; pause > replayAlive; pause -= replayAlive {
		if err := sleep(ctx, replayAlive); err != nil {
			return err
		}
		if err := out.alive(); err != nil {
			return err
		}
	}
	return sleep(ctx, pause)
}

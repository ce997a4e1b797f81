package query

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/verify"
)

// proofAnswer reports whether a run's record matches its raw events.
type proofAnswer struct {
	ThreadID string         `json:"threadId"`
	RunID    string         `json:"runId"`
	Status   record.Status  `json:"status"`
	Verdict  verify.Verdict `json:"verdict"`
	// Reason is why the run could not be verified.
	Reason string `json:"reason,omitempty"`
	// Earliest is the first of the run's events that still exists, if earlier ones are gone.
	Earliest *record.Position `json:"earliest,omitempty"`

	Record claim `json:"record"`
	// Raw is the result of folding the raw events; absent if they are gone.
	Raw *claim `json:"raw,omitempty"`
	// Differences are the fields of the record that differ from the result.
	Differences []string `json:"differences"`
	// DiffersFrom: the first event that differs is this one or a later one.
	DiffersFrom *record.Position `json:"differsFrom,omitempty"`
	// Unproved lists what was not verified.
	Unproved []string `json:"unproved"`

	badges
	IndexedTo record.Position `json:"indexedTo"`
}

// claim is a summary of a run's events.
type claim struct {
	Events      int64  `json:"events"`
	SHA256      string `json:"sha256"`
	InputSHA256 string `json:"inputSha256,omitempty"`
}

// verify folds a run's raw events again and compares the result with the run's record.
func (c *call) verify() (*answer, error) {
	v, err := c.read(c.store.Thread)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(v.indexed, func(r store.Run) bool { return r.RunID == c.runID })
	if i < 0 {
		return nil, store.ErrNotFound
	}
	raw, err := c.openRaw(v.indexedTo.Partition)
	if err != nil {
		return nil, err
	}
	defer raw.close()
	if row := &v.indexed[i]; !c.load.fits(verify.Bytes(&row.Run)) {
		return nil, &front.Problem{Status: http.StatusUnprocessableEntity, Detail: c.tooLarge(row), Limit: "memory"}
	}
	from := &indexed{call: c, runs: v.indexed}
	answers, err := c.prove(raw, from, v.indexed[i:i+1], v.indexedTo)
	if err != nil {
		return nil, err
	}
	if from.later != nil && answers[0].Verdict == verify.Unproved {
		return nil, from.later
	}
	return &answer{status: v.status, body: document(answers[0])}, nil
}

// These limit how many runs of a thread are folded together, and their approximate memory in bytes. Runs that were open
// when one of them began are folded in addition. The first run is folded even if it exceeds the limits.
const (
	provedAtOnce      = 64
	provedAtOnceBytes = 64 << 20
)

// verifyThread verifies all runs of a thread and answers with one line per run, by start. If a run cannot be verified
// for now, its line has the reason.
func (c *call) verifyThread() error {
	v, err := c.readInTime()
	if err != nil {
		return err
	}
	raw, err := c.openRaw(v.indexedTo.Partition)
	if err != nil {
		return err
	}
	defer raw.close()
	out := newProofWriter(c)
	c.W.Header().Set(headerIndexedTo, v.indexedTo.String())
	out.start()
	if c.R.Method == http.MethodHead {
		return nil
	}
	return c.stream(c.proveAll(raw, &indexed{call: c, runs: v.indexed}, v, out), out)
}

// proveAll verifies all runs of a thread and writes the answers.
func (c *call) proveAll(raw *rawRead, from *indexed, v view, out *replayWriter) error {
	for rest := v.indexed; len(rest) > 0; {
		if err := c.load.acquire(c.R.Context()); err != nil { // released when the lines before were sent
			return err
		}
		n, size := 0, int64(0)
		for n < len(rest) && n < provedAtOnce && (n == 0 || size+verify.Bytes(&rest[n].Run) <= provedAtOnceBytes) {
			size += verify.Bytes(&rest[n].Run)
			n++
		}
		var answers []proofAnswer
		var err error
		if row := &rest[0]; !c.load.fits(size) { // a batch this large has one run
			p := verify.Report{RunID: row.RunID, Verdict: verify.Unproved, Reason: c.tooLarge(row), Earliest: -1, Differences: []string{},
				Unproved: []string{}}
			answers = []proofAnswer{newProofAnswer(*row, p, v.indexedTo)}
		} else if answers, err = c.prove(raw, from, rest[:n], v.indexedTo); err != nil {
			return err
		}
		for _, a := range answers {
			if err := out.line(a); err != nil {
				return err
			}
		}
		if err := out.flush(); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// tooLarge returns the reason for refusing a run that is too large to fold again.
func (c *call) tooLarge(row *store.Run) string {
	return fmt.Sprintf("folding run %q again takes about %d bytes of memory, and one tenant may have %d here: have the operator raise --memory, or verify where that is larger", row.RunID, verify.Bytes(&row.Run), c.room.memory.Alone())
}

// prove verifies the runs in wanted: it folds their raw events and compares the results with the records in the rows.
func (c *call) prove(raw *rawRead, from *indexed, wanted []store.Run, to record.Position) ([]proofAnswer, error) {
	ids := make([]string, len(wanted))
	need := int64(0)
	for i := range wanted {
		ids[i] = wanted[i].RunID
		need += verify.Bytes(&wanted[i].Run)
	}
	if err := c.load.take(need); err != nil {
		return nil, err
	}
	defer func() { _ = c.load.take(-need) }() // a release never fails
	v, err := verify.NewThread(recordsOf(from.runs), ids, [2]int64{raw.start, raw.end}, from)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	var expired error
	err = c.eachOfThread(raw, v.Ranges(), v.Take)
	if errors.Is(err, errRawGone) { // they expired after the start of the log was read
		expired, err = from.lacks("raw events have expired while they were read; try again"), nil
	}
	if err != nil {
		return nil, err
	}
	reports, err := v.Reports()
	if err != nil {
		return nil, err
	}
	stale := expired
	if expired == nil && slices.ContainsFunc(reports, func(p verify.Report) bool { return p.Verdict == verify.Differs }) {
		if stale, err = from.stale(); err != nil {
			return nil, err
		}
	}
	answers := make([]proofAnswer, len(reports))
	for i, p := range reports {
		if expired != nil || stale != nil && p.Verdict == verify.Differs {
			p = verify.Report{RunID: p.RunID, Verdict: verify.Unproved, Reason: stale.Error(), Earliest: -1, Differences: []string{},
				Unproved: []string{}}
		}
		answers[i] = newProofAnswer(wanted[i], p, to)
	}
	return answers, nil
}

func newProofAnswer(row store.Run, p verify.Report, to record.Position) proofAnswer {
	a := proofAnswer{
		ThreadID: row.ThreadID, RunID: row.RunID, Status: row.Status, Verdict: p.Verdict, Reason: p.Reason,
		Record:      claim{Events: row.Raw.Events, SHA256: row.Raw.SHA256, InputSHA256: row.InputSHA256},
		Differences: p.Differences, Unproved: p.Unproved,
		badges: badgesOf(row), IndexedTo: to,
	}
	if p.Raw != nil {
		a.Raw = &claim{Events: p.Raw.Events, SHA256: p.Raw.SHA256, InputSHA256: p.Raw.InputSHA256}
	}
	if p.Verdict == verify.Differs {
		a.DiffersFrom = &record.Position{Partition: row.Raw.Partition, Offset: p.From}
	}
	if p.Earliest >= 0 {
		a.Earliest = &record.Position{Partition: row.Raw.Partition, Offset: p.Earliest}
	}
	return a
}

// indexed implements verify.Source from the index and skein.runs.
type indexed struct {
	*call
	runs []store.Run
	// later is the error for data that was not available yet.
	later error
}

func (s *indexed) row(run string) int {
	return slices.IndexFunc(s.runs, func(r store.Run) bool { return r.RunID == run })
}

func (s *indexed) lacks(detail string) error {
	s.later = later(detail)
	return &fold.StartError{Reason: detail}
}

// Record implements verify.Source.
func (s *indexed) Record(run string) (*record.Run, error) {
	rec, err := s.recordOf(s.R.Context(), s.runs[s.row(run)])
	if errors.Is(err, kafka.ErrNoRecord) {
		return nil, s.lacks(fmt.Sprintf("run %q goes on and has a newer record by now; try again", run))
	}
	return rec, err
}

// History implements verify.Source.
func (s *indexed) History(run string) (lineage.History, error) {
	i := s.row(run)
	if i < 0 {
		return lineage.History{}, s.lacks(fmt.Sprintf("run %q is indexed in part; try again", run))
	}
	h, err := s.restore(s.R.Context(), s.runs, run)
	switch why := new(front.Problem); {
	case errors.As(err, &why) && why.Limit == "": // the index lags
		return lineage.History{}, s.lacks(why.Detail)
	case errors.Is(err, errBroken):
		return lineage.History{}, &fold.StartError{Reason: fmt.Sprintf("the history at the end of run %q, from which it starts, cannot be put together", run)}
	case err != nil:
		return lineage.History{}, err
	case s.runs[i].Version != h.run.Version: // the run to verify is based on the older one
		return lineage.History{}, s.lacks(fmt.Sprintf("run %q has a newer record by now; try again", run))
	}
	return h.History, nil
}

// Holding implements verify.Source.
func (s *indexed) Holding(messageIDs []string) ([]string, error) {
	versions, err := s.store.Holding(s.R.Context(), s.Tenant, s.threadID, messageIDs)
	if err != nil {
		return nil, err
	}
	var runs []string
	for run, version := range versions {
		if i := s.row(run); i < 0 || s.runs[i].Version != version {
			return nil, s.lacks(fmt.Sprintf("run %q has a newer record by now; try again", run))
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// stale returns the reason if the thread's rows have changed since they were read, as they may then mix two states.
func (s *indexed) stale() (why, err error) {
	runs, err := s.store.Thread(s.R.Context(), s.Tenant, s.threadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if slices.EqualFunc(runs, s.runs, func(a, b store.Run) bool { return a.RunID == b.RunID && a.Version == b.Version }) {
		return nil, nil
	}
	return s.lacks("the thread has newer records by now; try again"), nil
}

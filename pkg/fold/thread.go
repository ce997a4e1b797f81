package fold

import (
	"bytes"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Outcomes of records that belong to no run, or to a run that does not change.
const (
	// Covered: the run's record already includes the raw record.
	Covered Outcome = "covered"
	// LateError: the agent's RUN_ERROR after its RUN_FINISHED. The run's record is written once more (record.LateError).
	LateError Outcome = "late-error"
	// SecondTerminal: another terminal event of a run that has ended. It changes nothing.
	SecondTerminal Outcome = "second-terminal"
	// Late: another event of a run that has ended.
	Late Outcome = "late"
	// NoRun: the record names no run, and none is open.
	NoRun Outcome = "no-run"
)

// Directory gives a Thread access to runs and records. The owner of the Thread implements it.
type Directory[M Member] interface {
	// Load adds to the thread's table each run with this id or client run id that a record at or above the offset may name.
	Load(id string, offset int64) error
	// New returns a new run that begins with a record, and its fold. clientRunID is empty if it equals id.
	New(id, clientRunID string, first *Decoded) (M, *Run, error)
	// Resume returns the fold of a run that is not sealed.
	Resume(m M) (*Run, error)
	// Withdraw forgets a run that has no event yet, and reports whether it did: a run that a record has stays.
	Withdraw(m M) bool
	// Record returns the record of a sealed run.
	Record(m M) (*record.Run, error)
	// History returns the history at a run's end, or the current history of an open run.
	History(run string) (lineage.History, error)
}

// Thread decides about the raw records of one thread, in offset order: which run a record belongs to, whether it begins
// another run, and that run's id. At a run's first event it also decides parent, branch, base and starting history. It
// implements Runs. The owner must add a new run to the table, unless the outcome of its first record is Malformed.
type Thread[M Member] struct {
	Table[M]
	// Lineage contains all runs of the table whose parent is resolved.
	Lineage *lineage.Thread
	Settings
	dir Directory[M]

	// Results for the last record: its run, even if the record does not change it; whether it begins that run; and, at a
	// run's first event, its parent resolution.
	Member     M
	IsNew      bool
	Resolution *Resolution
}

// Settings are the settings of a Thread.
type Settings struct {
	// Keep lists the families of events that folds keep.
	Keep agui.Families
	// Fits reports whether a record has room for the history of a parent that was open when its child started, together
	// with the child's input. If it has not, the child starts without that history. nil: there is always room.
	Fits func(at lineage.History, input *agui.RunAgentInput) bool
}

// NewThread returns a Thread with these runs. The directory may add others later.
func NewThread[M Member](settings Settings, dir Directory[M], runs ...M) (*Thread[M], error) {
	t := &Thread[M]{Settings: settings, dir: dir}
	resolved := make([]lineage.Run, 0, len(runs))
	for _, m := range runs {
		t.Add(m)
		if m.Meta().Resolved() {
			resolved = append(resolved, m.Meta().Run)
		}
	}
	var err error
	t.Lineage, err = lineage.NewThread(resolved...)
	return t, err
}

// Show adds an in-memory run in its current state to the lineage.
func (t *Thread[M]) Show(m *Metadata, r *Run) error {
	switch {
	case !m.Resolved():
		return nil
	case m.IsExpired(): // its record has its history until another event arrives
		return t.Lineage.Add(m.Run)
	case r.Fold == nil:
		return t.Lineage.AddLive(&m.Run, func() []agui.Message { return r.Placed.Parent.Messages })
	default:
		return t.Lineage.AddLive(&m.Run, r.Fold.Messages)
	}
}

// HistoryKey returns the key of the history at a run's end, from its filled record (Fill). If the run only appended to its base, it
// reads only the added messages: messages of the base that its record lacks because they were too large count as they were.
func (t *Thread[M]) HistoryKey(rec *record.Run, folded *compact.Run) lineage.HistoryKey {
	if base := t.Get(rec.Base); base != *new(M) && rec.Layout == nil && base.Meta().MessageCount+len(rec.Messages) == rec.MessageCount {
		return base.Meta().HistoryKey.Extend(rec.Messages)
	}
	return lineage.KeyOf(folded.Messages())
}

// Find implements Runs.
func (t *Thread[M]) Find(d *Decoded) (*Run, Outcome, error) {
	id := d.ClientRunID()
	m, err := t.of(id, d)
	t.Member, t.IsNew, t.Resolution = m, false, nil
	if err != nil {
		return nil, "", err
	}
	none := *new(M)
	if m == none && id == "" && isRunError(d) { // no run is open: it is about the run that ended last
		if last, ok := t.Lineage.LastEnded(d.Offset); ok {
			m = t.Get(last.ID)
			t.Member = m
		}
	}
	begins := m == none
	if !begins {
		switch meta := m.Meta(); {
		case d.Offset < meta.Next:
			return nil, Covered, nil
		case !meta.Sealed:
			r, err := t.dir.Resume(m)
			if err != nil {
				return nil, "", err
			}
			if again, err := t.repeatsRun(m, r, d); again || err != nil {
				return nil, Repeat, err
			}
			return r, "", nil
		}
		if begins, err = t.beginsAgain(m, d); err != nil {
			return nil, "", err
		}
	}
	switch {
	case !begins && Behind(d.Headers.Seq, m.Meta().NextSeq): // a repeat changes no sealed run
		return nil, Repeat, nil
	case d.Malformed() != nil:
		return nil, Malformed, nil //nolint:nilerr // bad data is an outcome, not an error of the partition
	case !begins && failsLate(m.Meta(), d):
		return nil, LateError, nil
	case !begins && d.Payload().Type.Terminal():
		return nil, SecondTerminal, nil
	case !begins:
		return nil, Late, nil
	case id == "":
		return nil, NoRun, nil
	}
	r, err := t.begin(id, d)
	return r, "", err
}

// of loads the runs of the client run id and then calls Table.Of.
func (t *Thread[M]) of(id string, d *Decoded) (found M, err error) {
	if id != "" {
		if m, ok := t.lastNamed(id, d.Offset); ok {
			return m, nil
		}
		if err := t.dir.Load(id, d.Offset); err != nil {
			return found, err
		}
	}
	return t.Of(d), nil
}

// beginsAgain reports whether a record, a RUN_STARTED or an input, begins another run with the id of a sealed one. A
// producer that numbers its events repeats them after a broken connection. A repeated start of the sealed run begins no
// run. A repeated input may do so: the next event shows it (repeatsRun).
func (t *Thread[M]) beginsAgain(m M, d *Decoded) (bool, error) {
	switch ev := d.Payload(); {
	case d.Input() != nil:
		return true, nil
	case ev != nil && ev.Type == agui.RunStarted:
		if !Behind(d.Headers.Seq, m.Meta().NextSeq) {
			return true, nil
		}
		rec, err := t.dir.Record(m)
		if err != nil {
			return false, err
		}
		return !bytes.Equal(record.Compacted(agui.Without(ev.Body, agui.FieldInput.String())), record.Compacted(rec.Started)), nil
	default:
		return false, nil
	}
}

// repeatsRun reports whether the first event of a pending run repeats one of the sealed run before it with the same client run id, as its
// input did. Then there is no such run.
func (t *Thread[M]) repeatsRun(m M, r *Run, d *Decoded) (bool, error) {
	if !m.Meta().Pending || r.Input == nil || d.Headers.Seq < 0 {
		return false, nil
	}
	id := m.Meta().ClientRunID()
	if err := t.dir.Load(id, m.Meta().Start); err != nil {
		return false, err
	}
	before := t.Named(id, m.Meta().Start-1)
	if before == *new(M) || !before.Meta().Sealed || !Behind(d.Headers.Seq, before.Meta().NextSeq) {
		return false, nil
	}
	if begins, err := t.beginsAgain(before, d); begins || err != nil {
		return false, err
	}
	if same, err := t.SameInput(before, r.InputSHA256); !same || err != nil || !t.dir.Withdraw(m) {
		return false, err
	}
	t.Remove(m)
	t.Member = before
	return true, nil
}

// SameInput reports whether an input with this hash repeats that of a sealed run whose producer numbers its events.
func (t *Thread[M]) SameInput(m M, sum string) (bool, error) {
	if m == *new(M) || !m.Meta().Sealed || m.Meta().NextSeq < 0 {
		return false, nil
	}
	rec, err := t.dir.Record(m)
	return err == nil && rec.InputSHA256 == sum, err
}

// failsLate reports whether a record says that a sealed run failed after all. An end by Skein's proxy is final: what an agent sends after
// it may be the effect of a cancelled request.
func failsLate(m *Metadata, d *Decoded) bool {
	switch m.Status {
	case lineage.StatusFinished, lineage.StatusInterrupted, lineage.StatusCancelled:
		return isRunError(d) && !m.Synthetic && !d.SyntheticEnd()
	default:
		return false
	}
}

func isRunError(d *Decoded) bool {
	ev := d.Payload()
	return ev != nil && ev.Type == agui.RunError
}

// begin begins a run. Its id is the client run id or, if that is in use, one from freeID.
func (t *Thread[M]) begin(clientRunID string, d *Decoded) (r *Run, err error) {
	id, err := t.freeID(clientRunID, d.Offset, t.dir.Load)
	if err != nil {
		return nil, err
	}
	if id == clientRunID {
		clientRunID = ""
	}
	t.Member, r, err = t.dir.New(id, clientRunID, d)
	t.IsNew = true
	return r, err
}

// Begin implements Runs.
func (t *Thread[M]) Begin(r *Run, first *Decoded, input *agui.RunAgentInput) (*compact.Run, error) {
	at, err := t.Resolve(t.Member.Meta(), r, first.Payload(), input, first.Offset)
	if err != nil {
		return nil, err
	}
	for _, rule := range at.Anomalies {
		at.Fold.Note(rule)
	}
	if !t.IsNew {
		before := *r
		before.Seq = r.Seq.Clone()
		at.Before = &before
	}
	t.Resolution = at
	return at.Fold, nil
}

package query

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
	"github.com/skeinhq/skein/pkg/verify"
	"github.com/skeinhq/skein/pkg/verify/scan"
)

// verifyEvery is the time between two progress lines while all runs are verified.
const verifyEvery = time.Second

// verifyProgress is the progress of verifying all runs, in thousandths of the raw records to read. The number of
// records would disclose how many other tenants have.
type verifyProgress struct {
	Progress progressAnswer `json:"progress"`
}

type progressAnswer struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

const thousandths = 1000

// These are the reasons why a run's row was not compared: it is not the row of the record that was verified.
const (
	unindexedYet   = "the index: it has no row of this record yet"
	unindexedSince = "the index: it has a newer record by now"
)

// verifyAll verifies all runs of the tenant. It answers with one line a run, by partition and thread. It takes the runs
// from skein.runs, which it reads once together with the raw events, so it also compares each row of the index with its
// record.
func (c *call) verifyAll() error {
	if err := c.load.take(scan.VerifyBytes); err != nil {
		return err
	}
	done, err := c.takeRaw()
	if err != nil {
		return err
	}
	defer done()
	a := &allAnswer{call: c, out: newProofWriter(c)}
	if a.to, err = c.store.IndexedTo(c.R.Context(), c.Tenant); err != nil {
		return err
	}
	if c.R.Method == http.MethodHead {
		a.out.start()
		return nil
	}
	q := scan.Query{Tenant: c.Tenant, Progress: a.progress, Excluded: a.excluded}
	if err = scan.Verify(c.R.Context(), c.raw.cfg, q, a.runs); !a.out.started && err != nil {
		return err
	}
	return c.stream(err, a.out)
}

// allAnswer is the answer about all runs of a tenant.
type allAnswer struct {
	*call
	out      *replayWriter
	to       map[int32]int64 // the index's progress
	reported time.Time       // the time of the last progress line
	broken   error           // an error of the caller's connection, or of the wait for a slot
}

// progress writes a progress line at most every verifyEvery, and one at the end.
func (a *allAnswer) progress(done, total int) {
	if now := time.Now(); done == total || now.Sub(a.reported) >= verifyEvery {
		a.reported = now
		a.out.start()
		p := verifyProgress{progressAnswer{done * thousandths / max(total, 1), thousandths}}
		if done == total {
			p.Progress.Done = thousandths
		}
		a.broken = errors.Join(a.out.line(p), a.out.flush(), a.load.acquire(a.R.Context()))
	}
}

// runs writes the answers about a thread's runs.
func (a *allAnswer) runs(runs []scan.Verified) error {
	if a.broken != nil {
		return a.broken
	}
	answers, err := a.besideRows(runs)
	if err != nil {
		return err
	}
	a.out.start()
	for _, one := range answers {
		if err := a.out.line(one); err != nil {
			return err
		}
	}
	return a.load.acquire(a.R.Context())
}

// excluded writes the answers about a thread that the scan leaves out. It verifies the runs in the thread's rows.
func (a *allAnswer) excluded(_, thread string) error {
	c := *a.call
	c.threadID = thread
	rows, err := c.store.Thread(c.R.Context(), c.Tenant, thread)
	if errors.Is(err, store.ErrNotFound) { // it was erased meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	v := newView(rows, a.to)
	raw, err := c.openRaw(v.indexedTo.Partition)
	if err != nil {
		return err
	}
	defer raw.close()
	a.out.start()
	if err := c.proveAll(raw, &indexed{call: &c, runs: rows}, v, a.out); err != nil {
		return err
	}
	return a.load.acquire(a.R.Context())
}

// besideRows returns the answers about a thread's runs. It compares each row with the record that was verified.
func (a *allAnswer) besideRows(runs []scan.Verified) ([]proofAnswer, error) {
	first := runs[0].Record
	rows, err := a.store.Thread(a.R.Context(), a.Tenant, first.ThreadID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	byID := byID(rows)
	indexedTo := record.Position{Partition: first.Raw.Partition, Offset: max(a.to[first.Raw.Partition]-1, 0)}
	answers := make([]proofAnswer, len(runs))
	for i, r := range runs {
		p := r.Report
		switch row, ok := byID[r.Record.RunID]; {
		case !ok, row.Version < r.Version:
			p.Unproved = append(p.Unproved, unindexedYet)
		case row.Version > r.Version:
			p.Unproved = append(p.Unproved, unindexedSince)
		default:
			same, err := isRowOf(row, r.Record)
			if err != nil {
				return nil, err
			}
			if !same && p.Verdict != verify.Differs {
				p.Verdict, p.From = verify.Differs, r.Record.Raw.First
			}
			if !same {
				p.Differences = append(p.Differences, "index")
			}
		}
		answers[i] = newProofAnswer(store.Run{Run: *r.Record, Version: r.Version}, p, indexedTo)
	}
	return answers, nil
}

// isRowOf reports whether a row equals its record, apart from contents.
func isRowOf(row store.Run, rec *record.Run) (bool, error) {
	want := *rec
	want.Messages, want.InputMessages, want.State, want.Open = nil, nil, nil, nil
	a, errA := record.EncodeRun(&want)
	b, errB := record.EncodeRun(&row.Run)
	return bytes.Equal(a, b), errors.Join(errA, errB)
}

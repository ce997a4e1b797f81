package shadow

import (
	"errors"
	"fmt"
	"strings"

	"github.com/skeinhq/skein/pkg/compact"
	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// Anew is a record that is written in the place of the one that is there.
type Anew struct {
	Record *record.Run
	// Was is the history at the run's end as it is told by now, Is as it is told from then on.
	Was, Is lineage.History
}

// ErrLeft says that a thread's records stay as they are, all of them: one that would have to be written anew
// cannot be.
var ErrLeft = errors.New("the thread stays as it is")

// Anew returns the records that are written anew, by start, once all raw records were taken: of runs that come
// out otherwise by now, and of those that hang from them, whose own part is then told against another
// history. Place, positions, hashes and the families of kept events stay. From records that were written so, and
// the same raw records, nothing comes.
//
// A run that would come out otherwise and cannot be folded again (raw events are gone, contents were cut) stays;
// where it hangs from one that changes, the error is ErrLeft, as half of a chain is no history. It is too where a run is
// open, or would have ended otherwise than it has.
func (t *Thread) Anew() ([]Anew, error) {
	var all []Anew
	refolds := map[string]int{} // of the runs in all
	for _, r := range t.runs {
		if r.rec.Status == record.StatusRunning {
			return nil, fmt.Errorf("%w: run %q is open: ask again once it has ended", ErrLeft, r.rec.RunID)
		}
		of, hangs := refolds[r.rec.Base]
		out, err := r.result()
		if err != nil {
			return nil, err
		}
		switch why := r.why; {
		case out.Outcome != Changes && !hangs:
			continue
		case r.rec.Truncated:
			why = "its contents were cut"
			fallthrough
		case r.keep != "":
			if hangs {
				return nil, fmt.Errorf("%w: run %q hangs from one that changes, and cannot be folded again: %s", ErrLeft, r.rec.RunID, why)
			}
			continue
		}
		for _, d := range out.Differences {
			if !folded(d) {
				return nil, fmt.Errorf("%w: the raw events of run %q are not those of its record, which differs in %s", ErrLeft, r.rec.RunID, d.Member)
			}
		}
		if was, is := r.rec.Status.Sealed(), r.made.Status.Sealed(); was != is {
			// What came behind was taken for the run's, or for another's, by where it ended.
			why := "would not have ended"
			if is {
				why = "would have ended"
			}
			return nil, fmt.Errorf("%w: run %q %s by the rules of this version", ErrLeft, r.rec.RunID, why)
		}
		was, err := t.recorded(r)
		if err != nil {
			return nil, err
		}
		r.made.FoldVersion, r.made.Refolds = compact.Version, r.rec.Refolds+1
		if hangs {
			r.made.BaseRefolds = of
		}
		refolds[r.rec.RunID] = r.made.Refolds
		all = append(all, Anew{Record: r.made, Was: was, Is: r.at})
	}
	return all, nil
}

// folded reports whether a member of a record is a result of the fold's rules; the others prove that the raw
// events are the run's.
func folded(d fold.Difference) bool {
	return !strings.HasPrefix(d.Member, "raw.") && d.Member != "inputSha256"
}

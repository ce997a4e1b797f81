package query

import (
	"errors"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/store"
)

// deadLettersAnswer is a page of dead letters.
type deadLettersAnswer struct {
	DeadLetters []deadletter.Record `json:"deadLetters"`
	// Next is the next page's "after"; empty at the end.
	Next string `json:"next,omitempty"`
}

// deadLetters answers with the records that the compactor could not process. It reads them from Kafka; the index shows
// which of them lie below an erasure of their thread.
func (c *call) deadLetters() (*answer, error) {
	q := deadletter.Query{Tenant: c.Tenant, Thread: c.Query.Get("thread")}
	var err error
	if q.Reason, err = oneOf(c, "reason", deadletter.AllReasons()...); err != nil {
		return nil, err
	}
	limit, err := c.limit()
	if err != nil {
		return nil, err
	}
	if q.Since, err = c.time("since"); err != nil {
		return nil, err
	}
	after, err := c.position("after")
	if err != nil {
		return nil, err
	}
	done, err := c.takeRaw()
	if err != nil {
		return nil, err
	}
	defer done()
	var page deadletter.Page
	err = c.load.pause(c.R.Context(), func() (err error) {
		page, err = deadletter.ReadPage(c.R.Context(), c.raw.cfg, q, after, limit)
		return err
	})
	if err != nil {
		return nil, err
	}
	letters, err := c.notErased(page.Records)
	if err != nil {
		return nil, err
	}
	a := deadLettersAnswer{DeadLetters: letters}
	if page.Next != nil {
		a.Next = page.Next.String()
	}
	return &answer{body: document(a)}, nil
}

// notErased drops the dead letters that lie below an erasure of their thread. An erasure covers only the thread's own
// partition, so dead letters from another partition stay.
func (c *call) notErased(letters []deadletter.Record) ([]deadletter.Record, error) {
	below := map[string]int64{}
	kept := []deadletter.Record{}
	for _, l := range letters {
		if l.Position != nil && l.ThreadID != "" && l.Reason != deadletter.WrongPartition {
			if _, ok := below[l.ThreadID]; !ok {
				e, err := c.store.Erasure(c.R.Context(), c.Tenant, l.ThreadID)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					return nil, err
				}
				below[l.ThreadID] = e.Below
			}
			if l.Position.Offset < below[l.ThreadID] {
				continue
			}
		}
		kept = append(kept, l)
	}
	return kept, nil
}

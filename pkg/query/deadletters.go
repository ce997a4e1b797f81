package query

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/record"
)

// deadLettersAnswer is a page of dead letters.
type deadLettersAnswer struct {
	DeadLetters []deadletter.Letter `json:"deadLetters"`
	// Next is the next page's "after"; empty at the end.
	Next string `json:"next,omitempty"`
}

// Dead letters on a page.
const (
	defaultDeadLetters = 100
	maxDeadLetters     = 1000
)

// deadLetters answers with what the compactor could do nothing with. They are read from Kafka: the index
// has no part in it.
func (c *call) deadLetters() error {
	q := deadletter.Query{Tenant: c.tenant, Reason: c.query.Get("reason"), Thread: c.query.Get("thread")}
	if q.Reason != "" && !slices.Contains(deadletter.Reasons(), q.Reason) {
		return badRequest(fmt.Sprintf("reason must be one of %v, not %q", deadletter.Reasons(), q.Reason))
	}
	limit, err := c.number("limit", defaultDeadLetters, 1, maxDeadLetters)
	if err != nil {
		return err
	}
	if q.Since, err = c.since(); err != nil {
		return err
	}
	var after *record.Position
	if text := c.query.Get("after"); text != "" {
		at, err := record.ParsePosition(text)
		if err != nil {
			return badRequest(fmt.Sprintf("after must be the next of a page, such as 3:1024, not %q", text))
		}
		after = &at
	}
	page, err := c.raw.deadLetters(c.r.Context(), q, after, limit)
	if err != nil {
		return err
	}
	a := deadLettersAnswer{DeadLetters: page.Letters}
	if page.Next != nil {
		a.Next = page.Next.String()
	}
	return c.json(http.StatusOK, a)
}

package ingest

import (
	"context"
	"net/http"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/eventstream"
	"github.com/skeinhq/skein/pkg/record"
)

// erasureReceipt is the response to an erasure.
type erasureReceipt struct {
	ThreadID string          `json:"threadId"`
	Position record.Position `json:"position"`
	// Href is the path of the erasure in the query API.
	Href string `json:"href"`
}

// deleteThread serves DELETE /v1/threads/{thread}. It writes an erase record without reading the thread. The compactor
// then erases all earlier records of the thread. A retry is harmless.
func (s *Service) deleteThread(c *front.Call, t target) error {
	if err := c.Announce(); err != nil {
		return err
	}
	held := s.memory.Claim(t.tenant, 0)
	defer held.Close()
	if err := held.Take(int64(requestBase + front.HeadBytes(c.R))); err != nil {
		return err
	}
	got, err := s.publishOne(c.R.Context(), t, record.KindErase, producer{}, []byte("{}"))
	if err != nil {
		return err
	}
	s.sent.forget(t.key)
	at := record.Position{Partition: got.Partition, Offset: got.FirstOffset}
	receipt := erasureReceipt{ThreadID: t.thread, Position: at, Href: "/v1/erasures/" + at.String()}
	c.W.Header().Set("Location", receipt.Href)
	return accept(c, http.StatusAccepted, receipt)
}

// publishOne writes one record and waits for its acknowledgement.
func (s *Service) publishOne(ctx context.Context, t target, kind record.Kind, by producer, value []byte) (ack, error) {
	p := s.newPublisher(ctx, t, kind, by, func() {})
	p.send(eventstream.Event{Value: value, Seq: -1}, "")
	return p.finish()
}

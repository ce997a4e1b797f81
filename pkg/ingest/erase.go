package ingest

import (
	"fmt"
	"net/http"

	"github.com/skeinhq/skein/internal/audit"
	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/record"
)

// erasureReceipt says where an erasure lies, and where one can follow it.
type erasureReceipt struct {
	ThreadID string          `json:"threadId"`
	Position record.Position `json:"position"`
	// Href is a path of the query stage.
	Href string `json:"href"`
}

// deleteThread is DELETE /v1/threads/{thread}. It knows nothing of the thread, and writes what asks the
// compactor to erase it: all that lies before that in the thread's partition. A retry does no harm.
func (s *Service) deleteThread(w http.ResponseWriter, r *http.Request, t target) {
	if err := audit.Begin(r.Context()); err != nil {
		s.unavailable(w, r, callErase, fmt.Errorf("%w: %w", ErrUnavailable, audit.ErrNotWritten), nil)
		return
	}
	held := &claim{of: s.memory, tenant: t.tenant}
	if rej := held.take(requestBase + front.HeadBytes(r)); rej != nil {
		s.refuse(w, r, callErase, rej, nil)
		return
	}
	defer held.close()
	p := s.newPublisher(r.Context(), t, record.KindErase, producer{}, nil, func() {})
	p.send(event{value: []byte("{}"), seq: -1})
	got, err := p.finish()
	if err != nil {
		s.unavailable(w, r, callErase, err, nil)
		return
	}
	at := record.Position{Partition: got.Partition, Offset: got.FirstOffset}
	receipt := erasureReceipt{ThreadID: t.thread, Position: at, Href: "/v1/erasures/" + at.String()}
	w.Header().Set("Location", receipt.Href)
	s.accept(w, callErase, http.StatusAccepted, receipt)
}

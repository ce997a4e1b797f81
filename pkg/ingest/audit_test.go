package ingest

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/front"
)

// Nothing is erased without a line in the audit log.
func TestErase_NeedsALineOfTheAuditLog(t *testing.T) {
	d := newStage(t)
	var out bytes.Buffer
	broken := false
	log, err := front.OpenAuditLog("-", "ingest", writerFunc(func(b []byte) (int, error) {
		if broken {
			return 0, errors.New("no space left on device")
		}
		return out.Write(b)
	}), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := front.Audited(d.svc.Handler(), "ingest", log, nil)
	erase := func() int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodDelete, "/v1/threads/t1", nil))
		return w.Code
	}
	if code := erase(); code != http.StatusAccepted {
		t.Errorf("erasing: %d", code)
	}
	for _, want := range []string{
		`"action":"erase","route":"DELETE /v1/threads/{thread}","tenant":"dev","threadId":"t1","from":"192.0.2.1","result":"begun"`,
		`"action":"erase","route":"DELETE /v1/threads/{thread}","tenant":"dev","threadId":"t1","from":"192.0.2.1","status":202,"result":"done"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the audit log does not have %s:\n%s", want, out.String())
		}
	}
	written := len(d.written())
	broken = true
	if code := erase(); code != http.StatusServiceUnavailable {
		t.Errorf("erasing without a line: %d", code)
	}
	if n := len(d.written()); n != written {
		t.Errorf("%d records were written, %d before", n, written)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

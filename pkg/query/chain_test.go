package query

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
)

var chainFlag = flag.Int("chain", 1_000, "runs of the longest chain")

// A chain of any length is restored, checked out, drawn and compared; make long-chains takes more than 100,000.
func TestHandler_AnswersForALongChain(t *testing.T) {
	partstest.SkipShort(t, "time for tests of scale")
	f := newPatientFixture(t)
	n := *chainFlag
	chain := make([]*record.Run, n)
	for i := range chain {
		id := fmt.Sprint("r", i)
		m := msg("m"+id, agui.RoleAssistant, "x")
		if i == 0 {
			chain[i] = run("chat", id, 0, m)
		} else {
			chain[i] = child(chain[i-1], id, int64(i), record.ParentLatest, m)
		}
	}
	f.put(chain...)
	last := chain[n-1]
	var checkout, history struct{ Messages []json.RawMessage }
	f.json("/v1/threads/chat/checkout", &checkout)
	f.json("/v1/threads/chat/runs/"+last.RunID+"/history?limit=1000", &history)
	var lines struct {
		Runs     []struct{ RunID string }
		Branches []struct{ BranchID string }
	}
	f.json("/v1/threads/chat/lineage", &lines)
	if len(checkout.Messages) != n || len(history.Messages) != 1000 || len(lines.Runs) != n || len(lines.Branches) != 1 {
		t.Errorf("%d messages checked out, %d in a page, %d runs, %d branches", len(checkout.Messages), len(history.Messages), len(lines.Runs),
			len(lines.Branches))
	}
	picture := f.get("acme", "/v1/threads/chat/lineage?format=text")
	if picture.status != http.StatusOK || !strings.Contains(picture.body, last.RunID) || strings.Count(picture.body, "\n") > 20 {
		t.Errorf("%d: a picture of %d lines", picture.status, strings.Count(picture.body, "\n"))
	}
	if r := f.get("acme", "/v1/threads/chat/diff?from=r0&to="+last.RunID); r.status != http.StatusOK {
		t.Errorf("comparing its ends: %d %.200s", r.status, r.body)
	}
}

package query

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// While Kafka does not say what the index lacks, an answer says that it may be old, and nothing is said not to exist.
func TestFresh_SaysThatItDoesNotKnow(t *testing.T) {
	f := newRawFixture(t)
	f.indexed("r", "", f.event("r", fmt.Sprintf(started, "r")), f.event("r", fmt.Sprintf(finished, "r")))
	const path = "/v1/threads/chat/runs/"
	if r := f.get("acme", path+"r/history"); r.status != 200 || r.header.Get(headerRemarks) != "" {
		t.Fatalf("%d, remarks %q", r.status, r.header.Get(headerRemarks))
	}
	for p := range int32(4) {
		f.service.awayUntil.Store(p, time.Now().Add(time.Hour))
	}
	for _, route := range []string{path + "r", path + "r/history", path + "r/checkout", path + "r/events", "/v1/threads/chat/lineage"} {
		r := f.get("acme", route)
		if r.status != 200 || r.header.Get(headerRemarks) != remarkBehind || r.header.Get(headerIndexedTo) != "3:1" {
			t.Errorf("%s: %d, remarks %q, as far as %q", route, r.status, r.header.Get(headerRemarks), r.header.Get(headerIndexedTo))
		}
	}
	f.get("acme", path+"nobody").problem(t, 503)
	f.get("acme", path+"nobody?fresh=no").problem(t, 404)
	if n := testutil.CollectAndCount(f.service.metrics.fresh); n != 3 {
		t.Errorf("%d outcomes", n)
	}
}

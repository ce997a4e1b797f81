package query

import (
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/internal/share"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/tail"
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

// openFixture has a thread with an open run r, of which the index has only that it was announced.
type openFixture struct {
	*rawFixture
	thread, path string
	rec          *record.Run
}

func newOpenFixture(t *testing.T) *openFixture {
	t.Helper()
	f := &openFixture{rawFixture: newRawFixture(t)}
	f.service.cfg.Wait = time.Second
	f.thread = f.rawFixture.thread()
	f.path = "/v1/threads/" + f.thread
	hash, err := sha256.New().(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	f.rec = &record.Run{
		Tenant: "acme", ThreadID: f.thread, RunID: "r", Status: record.StatusRunning, Raw: record.Raw{Ranges: [][2]int64{}, NextSeq: -1},
		Lineage: record.Lineage{ParentBy: record.ParentNone, BranchID: "r", RootRunID: "r"}, Open: &record.Open{Hash: hash, Pending: true},
	}
	f.put(f.rec)
	f.event("r", fmt.Sprintf(started, "r"))
	return f
}

func (f *openFixture) event(run, value string) int64 {
	f.t.Helper()
	return f.add("acme", f.thread, record.Headers{Kind: record.KindEvent, RunID: run, Seq: -1}, value)
}

// A read that ends among other threads' records lets the next one continue there.
func TestFresh_ReadsGoOnAmongOtherThreadsRecords(t *testing.T) {
	f := newOpenFixture(t)
	cfg := f.service.cfg.Tail
	cfg.Window, cfg.Registerer = 0, prometheus.NewRegistry()
	f.service.tail.Close()
	var err error
	if f.service.tail, err = tail.New(cfg); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		f.add("acme", "other", record.Headers{Kind: record.KindEvent, RunID: "o", Seq: -1}, "{}")
		f.produce() // a batch of its own
	}
	f.event("r", fmt.Sprintf(custom, "last"))
	f.produce()
	var second atomic.Bool
	f.cluster.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.Fake.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		fetch.MaxBytes = 1 // one batch
		for _, topic := range fetch.Topics {
			for _, p := range topic.Partitions {
				if (p.FetchOffset < 10) == second.Load() {
					return nil, errors.New("the connection is cut"), true
				}
			}
		}
		return nil, nil, false
	})
	if r := f.get("acme", f.path+"/runs/r"); r.status != 200 || r.header.Get(headerRemarks) != remarkBehind {
		t.Fatalf("%d %s, remarks %q", r.status, r.body, r.header.Get(headerRemarks))
	}
	second.Store(true)
	if r := f.get("acme", f.path+"/runs/r"); r.header.Get(headerRemarks) != "" || !strings.Contains(r.body, `"CUSTOM":1`) {
		t.Errorf("the second read: %s, remarks %q", r.body, r.header.Get(headerRemarks))
	}
}

// A followed run has what the index learns about it alone.
func TestFresh_ShowsALossThatTheIndexHas(t *testing.T) {
	f := newOpenFixture(t)
	f.produce()
	if r := f.get("acme", f.path+"/runs/r"); strings.Contains(r.body, `"rawLost":true`) {
		t.Fatal(r.body)
	}
	f.rec.RawLost = true
	f.put(f.rec)
	if r := f.get("acme", f.path+"/runs/r"); !strings.Contains(r.body, `"rawLost":true`) || r.header.Get(headerRemarks) != "" {
		t.Errorf("%s, remarks %q", r.body, r.header.Get(headerRemarks))
	}
}

// Nothing is answered from below an erasure that a read has met, however late the index is.
func TestFresh_AnswersNothingFromBelowAnErasure(t *testing.T) {
	for _, ended := range []bool{false, true} {
		f := newOpenFixture(t)
		if ended {
			f.indexedFor("acme", f.thread, "r", "", nil, 0, f.event("r", fmt.Sprintf(finished, "r")))
		}
		f.add("acme", f.thread, record.Headers{Kind: record.KindErase, Seq: -1}, "{}")
		f.produce()
		for _, path := range []string{"/runs/r", "/runs/r/history", "/lineage"} {
			f.get("acme", f.path+path).problem(t, 503)
		}
	}
}

// A thread whose open run needs more memory than its tenant may have is read as far as the index.
func TestFresh_AnswersFromTheIndexIfAThreadIsTooLarge(t *testing.T) {
	f := newOpenFixture(t)
	f.indexedFor("acme", f.thread, "s", "", nil, f.event("s", fmt.Sprintf(started, "s")), f.event("s", fmt.Sprintf(finished, "s")))
	for i := range 4 {
		f.event("r", fmt.Sprintf(`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m%d","role":"assistant","delta":%q}`, i, strings.Repeat("x", 1<<20)))
	}
	f.produce()
	f.service.room.memory = &front.Memory{Pool: share.NewPool(4 << 20)}
	if r := f.get("acme", f.path+"/runs/s/history"); r.status != 200 || r.header.Get(headerRemarks) != remarkBehind {
		t.Errorf("%d %s, remarks %q", r.status, r.body, r.header.Get(headerRemarks))
	}
}

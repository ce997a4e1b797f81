package ingest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

func TestErase_IsARecordOfTheThreadAndAReceipt(t *testing.T) {
	d := newStage(t).in(t, "a/b c")
	if a := d.post(typeNDJSON, ev1); a.status != http.StatusOK {
		t.Fatalf("answer is %d %s", a.status, a.body)
	}
	for i := range 2 { // a retry does no harm
		a := d.do(http.MethodDelete, "/v1/threads/a%2Fb%20c", nil)
		if a.status != http.StatusAccepted {
			t.Fatalf("answer is %d %s", a.status, a.body)
		}
		rs := d.records()
		if len(rs) != i+2 {
			t.Fatalf("there are %d records", len(rs))
		}
		last := rs[len(rs)-1]
		h, err := record.ParseHeaders(last.Headers)
		if want := (record.Headers{Version: 1, Kind: record.KindErase, Seq: -1}); err != nil || !h.Equal(want) || string(last.Value) != "{}" {
			t.Errorf("record is %+v %s, %v; want %+v", h, last.Value, err, want)
		}
		if last.Partition != rs[0].Partition {
			t.Errorf("it lies on partition %d, the thread on %d", last.Partition, rs[0].Partition)
		}
		at := record.Position{Partition: last.Partition, Offset: last.Offset}
		want := erasureReceipt{ThreadID: "a/b c", Position: at, Href: "/v1/erasures/" + at.String()}
		var got erasureReceipt
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || got != want || a.header.Get("Location") != want.Href {
			t.Errorf("receipt is %s, Location %q; want %+v", a.body, a.header.Get("Location"), want)
		}
	}
}

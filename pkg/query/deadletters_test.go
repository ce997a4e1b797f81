package query

import (
	"net/http"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/deadletter"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

func TestDeadLetters_AreTheTenantsAndComeInPages(t *testing.T) {
	f := newRawFixture(t)
	for _, key := range []string{"acme/a", "umbrella/a", "acme/b", "no key"} {
		kafkatest.Produce(t, f.cluster.Config, &kgo.Record{
			Topic: f.cluster.Config.Topics().DeadLetters, Partition: 2, Key: []byte(key), Value: []byte("{}"),
			Headers: []kgo.RecordHeader{
				{Key: record.HeaderReason, Value: []byte(deadletter.NoRun)}, {Key: record.HeaderPosition, Value: []byte("2:17")},
				{Key: record.HeaderDetail, Value: []byte("of " + key)}, {Key: record.HeaderRetryOf, Value: []byte("2:3")},
				{Key: record.HeaderRunID, Value: []byte("r")},
			},
		})
	}
	var page deadLettersAnswer
	r := f.json("/v1/dead-letters?limit=1&reason=no-run&since=2026-01-01T00:00:00Z", &page)
	if len(page.DeadLetters) != 1 || page.DeadLetters[0].ThreadID != "a" || page.DeadLetters[0].Position.String() != "2:17" ||
		page.Next != "2:0" {
		t.Errorf("the first page is %s", r.body)
	}
	described(t, "DeadLetters", r.body)
	page = deadLettersAnswer{}
	if r := f.json("/v1/dead-letters?after=2:0", &page); len(page.DeadLetters) != 1 || page.DeadLetters[0].ThreadID != "b" || page.Next != "" || strings.Contains(r.body, "umbrella") {
		t.Errorf("the second page is %s", r.body)
	}
	page = deadLettersAnswer{}
	if f.json("/v1/dead-letters?thread=nowhere", &page); page.DeadLetters == nil || len(page.DeadLetters) != 0 {
		t.Errorf("of no thread: %+v", page)
	}
	for i, want := range []int{1, 0} { // it is of 2:17
		below := int64(17 + i)
		f.wrote(store.Entry{Tenant: "acme", ThreadID: "b", Erasure: &store.Erasure{Below: below}})
		f.wrote(store.Entry{Tenant: "umbrella", ThreadID: "a", Erasure: &store.Erasure{Below: 100}})
		var all, one deadLettersAnswer
		f.json("/v1/dead-letters", &all)
		if f.json("/v1/dead-letters?thread=b", &one); len(one.DeadLetters) != want || len(all.DeadLetters) != want+1 {
			t.Errorf("erased below %d, its thread has %d dead letters, the tenant %d", below, len(one.DeadLetters), len(all.DeadLetters))
		}
	}
	if detail := f.get("acme", "/v1/dead-letters?reason=bad-luck").problem(t, http.StatusBadRequest); !strings.Contains(detail, "after-terminal") {
		t.Errorf("no such reason: %s", detail)
	}
	f.get("writer", "/v1/dead-letters").problem(t, http.StatusForbidden)
}

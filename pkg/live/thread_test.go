package live_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/fold"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/live"
	"github.com/skeinhq/skein/pkg/record"
)

// noRecords is the source of a thread whose runs have no records.
type noRecords struct{}

var errNoRecord = errors.New("no run has a record")

func (noRecords) Record(string) (*record.Run, error)      { return nil, errNoRecord }
func (noRecords) History(string) (lineage.History, error) { return lineage.History{}, errNoRecord }
func (noRecords) Holding([]string) ([]string, error)      { return nil, nil }

// What a fold holds counts, and not what came: snapshots replace one another, and RAW leaves nothing.
func TestThread_CountsWhatFoldsHold(t *testing.T) {
	thread, err := live.New("t", nil, 0, noRecords{})
	if err != nil {
		t.Fatal(err)
	}
	offset := int64(0)
	take := func(events ...string) {
		t.Helper()
		for _, value := range events {
			_, outcome, err := thread.Take(record.Event{
				Offset: offset, Time: time.UnixMilli(offset), Key: []byte("acme/t"), Value: []byte(value),
				Headers: record.Headers{Version: record.Version, Kind: record.KindEvent, RunID: "r", Seq: -1},
			})
			if err != nil || outcome != fold.Folded {
				t.Fatalf("%s: %s, %v", value, outcome, err)
			}
			offset++
		}
	}
	kilobyte := strings.Repeat("x", 1000)
	take(`{"type":"RUN_STARTED","threadId":"t","runId":"r"}`)
	for range 2000 {
		take(fmt.Sprintf(`{"type":"STATE_SNAPSHOT","snapshot":{"note":%q}}`, kilobyte), fmt.Sprintf(`{"type":"RAW","event":%q}`, kilobyte))
	}
	if held := thread.Bytes(); held > 100_000 {
		t.Errorf("a state of a kilobyte counts as %d bytes", held)
	}
	take(`{"type":"TEXT_MESSAGE_START","messageId":"a","role":"assistant"}`)
	for range 2000 {
		take(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":%q}`, kilobyte))
	}
	if held := thread.Bytes(); held < 2_000_000 || held > 9_000_000 {
		t.Errorf("a message of 2 MB counts as %d bytes", held)
	}
}

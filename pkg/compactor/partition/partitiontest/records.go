package partitiontest

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
)

// OlderRecord is a record of a run as older rules might have made it: its contents say to where they said from.
func OlderRecord(tb testing.TB, m *kgo.Record, from, to string) *kgo.Record {
	tb.Helper()
	r, err := record.DecodeRun(m.Value)
	if err != nil {
		tb.Fatal(err)
	}
	if r.HistoryKey != "" && from == "mr3" && r.RunID == "r3" { // its ids are others
		r.HistoryKey = lineage.KeyOf([]agui.Message{{ID: "mr1"}, {ID: "mr2"}, {ID: to}}).String()
	}
	for i, own := range r.Messages {
		r.Messages[i].Raw = []byte(strings.ReplaceAll(string(own.Raw), from, to))
	}
	r.State = []byte(strings.ReplaceAll(string(r.State), from, to))
	r.FoldVersion = 0
	old := *m
	if old.Value, err = record.EncodeRun(r); err != nil {
		tb.Fatal(err)
	}
	return &old
}

// Told are the positions that are told, in the order of the topic.
func Told(tb testing.TB, runs []*kgo.Record) []int64 {
	tb.Helper()
	out := []int64{}
	for _, m := range runs {
		if string(m.Key) != record.ProgressKey {
			continue
		}
		h, err := record.ParseHeaders(m.Headers)
		if err != nil || h.Kind != record.KindProgress {
			tb.Errorf("kind of a progress record: %q, %v", h.Kind, err)
		}
		reached, err := record.DecodeProgress(m.Value)
		if err != nil {
			tb.Fatal(err)
		}
		if at := append([]int64{0}, out...); reached.Next != at[len(out)] { // else what is committed has moved
			out = append(out, reached.Next)
		}
	}
	return out
}

// Latest returns the latest run records among records of skein.runs, by run id.
func Latest(tb testing.TB, runs []*kgo.Record) map[string]*record.Run {
	tb.Helper()
	out := map[string]*record.Run{}
	for _, m := range runs {
		if IsDetail(m) {
			continue
		}
		parts, err := record.SplitKey(string(m.Key))
		if err != nil {
			tb.Fatal(err)
		}
		if len(parts) < 3 { // a progress record, a fence or an erasure
			continue
		}
		if m.Value == nil {
			delete(out, parts[2])
			continue
		}
		if out[parts[2]], err = record.DecodeRun(m.Value); err != nil {
			tb.Fatal(err)
		}
	}
	return out
}

// IsDetail reports whether a record of skein.runs has a thread's title, or that it is archived.
func IsDetail(m *kgo.Record) bool {
	return kafkatest.Header(m, record.HeaderKind) == string(record.KindThread)
}

// Letters returns the records on a topic of dead letters, as "position reason".
func Letters(topic string, records []*kgo.Record) []string {
	out := []string{}
	for _, m := range records {
		if m.Topic == topic {
			out = append(out, kafkatest.Header(m, record.HeaderPosition)+" "+kafkatest.Header(m, record.HeaderReason))
		}
	}
	return out
}

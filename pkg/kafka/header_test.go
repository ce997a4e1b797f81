package kafka_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/record"
)

// Whoever folds runs again passes over what the compactor puts aside, and stops at what a newer Skein wrote.
func TestRunEvent_StopsAtUnknownVersionsOnly(t *testing.T) {
	header := func(key, value string) []kgo.RecordHeader {
		return []kgo.RecordHeader{{Key: key, Value: []byte(value)}}
	}
	newer := kafka.Headers(record.Headers{Version: 2, Seq: -1})
	for name, tc := range map[string]struct {
		in   kgo.Record
		ok   bool
		want error
	}{
		"an event":         {kgo.Record{Value: []byte("{}")}, true, nil},
		"an input":         {kgo.Record{Headers: header("skein-kind", "input")}, true, nil},
		"an erasure":       {kgo.Record{Headers: header("skein-kind", "erase")}, false, nil},
		"an unknown kind":  {kgo.Record{Headers: header("skein-kind", "?")}, false, nil},
		"a bad header":     {kgo.Record{Headers: header("seq", "?")}, false, nil},
		"one too large":    {kgo.Record{Value: bytes.Repeat([]byte("x"), kafka.MaxValueBytes+1)}, false, nil},
		"a newer version":  {kgo.Record{Headers: newer}, false, record.ErrUnknownVersion},
		"a newer, of bad ": {kgo.Record{Headers: append(header("seq", "?"), newer...)}, false, record.ErrUnknownVersion},
		"a producer's 2":   {kgo.Record{Headers: header("skein-version", "2")}, false, nil},
	} {
		if _, ok, err := kafka.RunEvent(&tc.in, &record.Headers{}, nil); ok != tc.ok || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, %v; want %v, %v", name, ok, err, tc.ok, tc.want)
		}
	}
}

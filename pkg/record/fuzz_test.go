package record_test

import (
	"errors"
	"testing"

	"github.com/skeinhq/skein/pkg/record"
)

// FuzzParseHeaders: no panic; an error is one of the three; what was read is written and read as the same.
func FuzzParseHeaders(f *testing.F) {
	f.Add("skein-version", "1", "skein-kind", "event", "seq", "7")
	f.Add("skein-version", "2", "run-id", "", "seq", "-1")
	f.Add("run-id", "r\x00", "agent", "\xff", "skein-kind", "nothing")
	f.Add("agent", "a", "label-user", "7", "label-\xff", "x")
	f.Add("label-a", "1", "label-a", "2", "skein-synthetic", "true")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, k3, v3 string) {
		h, err := record.ParseHeaders([]record.Header{{Key: k1, Value: []byte(v1)}, {Key: k2, Value: []byte(v2)}, {Key: k3, Value: []byte(v3)}})
		switch {
		case errors.Is(err, record.ErrUnknownVersion) || errors.Is(err, record.ErrUnknownKind) || errors.Is(err, record.ErrInvalidHeader):
			return
		case err != nil:
			t.Fatalf("an error of no kind: %v", err)
		}
		if again, err := record.ParseHeaders(h.Encode()); err != nil || !again.Equal(h) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

// FuzzPosition: no panic; what is read is written and read as the same, in both forms.
func FuzzPosition(f *testing.F) {
	for _, s := range []string{"3:1024", "2147483647:9223372036854775807", "-1:0", "1:", ":", "1:2:3", `{"next":7}`, `{"next":7,"events":"a","committed":3,"processed":9,"partitions":2}`, `{"next":-1}`, `{"next":1e3}`, `null`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := record.ParsePosition(s); err == nil {
			if again, err := record.ParsePosition(p.String()); err != nil || again != p {
				t.Fatalf("%v became %v, %v", p, again, err)
			}
		}
		if reached, err := record.DecodeProgress([]byte(s)); err == nil {
			if again, err := record.DecodeProgress(record.EncodeProgress(reached)); err != nil || again != reached || reached.Next < 0 {
				t.Fatalf("%v became %v, %v", reached, again, err)
			}
		}
	})
}

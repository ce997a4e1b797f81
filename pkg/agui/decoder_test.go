package agui

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// deltas are content events as agents write them.
var deltas = []string{
	`{"type":"TEXT_MESSAGE_CONTENT","timestamp":1763717400000,"messageId":"m","delta":"abc é"}`,
	`{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{\"a\":1"}`,
	`{ "delta": "x", "type": "REASONING_MESSAGE_CONTENT", "messageId": "\u00e9" }`,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","rawEvent":null,"timestamp":17}`,
	`{"type":"TEXT_MESSAGE_CONTENT","delta":"a","delta":"b","messageId":"m"}`,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","subagentRunId":"s"}`,
	`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"a","more":1}`,
}

// sameAsDecode compares the Decoder, which has decoded the deltas before, with Decode, and another one with Admit.
func sameAsDecode(t *testing.T, d *Decoder, b []byte) {
	t.Helper()
	admitted, admitting := new(Event), *d
	wantUnreadable, wantErr := admitted.Admit(b)
	unreadable, err := admitting.Admit(b)
	same(t, b, &admitting, admitted, errors.Join(unreadable, err), errors.Join(wantUnreadable, wantErr))
	want, wantErr := Decode(b)
	same(t, b, d, want, d.Decode(b), wantErr)
}

func same(t *testing.T, b []byte, d *Decoder, want *Event, err, wantErr error) {
	t.Helper()
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%q: got %v, want %v", b, err, wantErr)
	}
	if err != nil {
		return
	}
	got := d.Event
	for f := range numFields {
		if string(got.JSON(f)) != string(want.JSON(f)) || got.Has(f) != want.Has(f) {
			t.Fatalf("%q: %s is %s, want %s", b, f, got.JSON(f), want.JSON(f))
		}
	}
	got.spans, want.spans, got.extras, want.extras = [numFields][2]uint32{}, [numFields][2]uint32{}, nil, nil
	if !reflect.DeepEqual(&got, want) {
		t.Fatalf("%q: got %+v, want %+v", b, got, want)
	}
}

func warm(t *testing.T, of ...string) *Decoder {
	t.Helper()
	d := new(Decoder)
	for range 2 {
		for _, b := range of {
			sameAsDecode(t, d, []byte(b))
		}
	}
	return d
}

// Each byte of a delta is replaced by each other, removed and preceded by what could end a value too early.
func TestDecoder_IsDecode(t *testing.T) {
	warm(t, deltas...)
	for _, base := range deltas {
		learned := *warm(t, base)
		try := func(b string) {
			d := learned
			sameAsDecode(t, &d, []byte(b))
		}
		for i := range len(base) {
			for c := range 256 {
				try(base[:i] + string([]byte{byte(c)}) + base[i+1:])
			}
			try(base[:i] + base[i+1:])
			try(base[:i])
			for _, in := range []string{
				`\`, `"`, `\u12`, `\u1234`, `\ud800`, " ", "0", "-", "e5", ",", "\xff", "\xc3", "\xed\xa0\x80", "999999999999999999", `","delta":"`,
			} {
				try(base[:i] + in + base[i:])
			}
		}
	}
}

func TestDecoder_KeepsLittleOfAnEvent(t *testing.T) {
	d := new(Decoder)
	for n := range len(d.shapes) {
		padded := strings.Replace(deltas[n%3], ":", ":"+strings.Repeat(" ", 1<<20), 1)
		sameAsDecode(t, d, []byte(padded))
	}
	kept := 0
	for _, s := range d.shapes {
		kept += len(strings.Join(s.before, ""))
	}
	if kept > 8*mostShape {
		t.Errorf("of events with 1 MiB of blanks, %d bytes are kept", kept)
	}
}

func TestDecoder_ComparesDeltas(t *testing.T) {
	for i, compared := range []bool{
		true, true,
		false, // a value stands before the type
		true, true,
		false, false, // a member that deltas seldom have
	} {
		d := warm(t, deltas[i])
		s := &d.shapes[d.last]
		if (s.spec != nil) != compared || compared && !d.decodeLike([]byte(deltas[i]), s) {
			t.Errorf("%s has the shape %+v", deltas[i], s)
		}
		d = new(Decoder)
		if unreadable, err := d.Admit([]byte(deltas[i])); errors.Join(unreadable, err) != nil || (d.shapes[0].spec != nil) != compared {
			t.Errorf("Admit: %s has the shape %+v, %v, %v", deltas[i], d.shapes[0], unreadable, err)
		}
	}
}

func FuzzDecoder_IsDecode(f *testing.F) {
	for _, b := range deltas {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) { sameAsDecode(t, warm(t, deltas...), b) })
}

package store

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/record"
)

// randomHead is a head in which each member is there or not, with texts of all kinds.
func randomHead(t *testing.T, random *rand.Rand) []byte {
	t.Helper()
	text := func() string {
		return []string{"", "", "a", "é", "say \"no\"", "a\nb\\c", "<&>\u2028", "\u0001", "😀", strings.Repeat("long ", 40)}[random.IntN(10)]
	}
	yes := func() bool { return random.IntN(2) == 0 }
	number := func() int64 { return []int64{0, 1, -1, 1_234_567, 999_999_999_999_999_999}[random.IntN(5)] }
	r := &record.Run{
		ClientRunID: text(), Status: record.StatusFinished, Agent: text(), Base: text(), MessageCount: int(number()), InputForm: record.InputForm(text()),
		Lineage:   record.Lineage{ParentRunID: text(), ParentBy: record.ParentContent, SpawnedBy: agui.String(text()), BranchID: text(), RootRunID: text(), Depth: int(number())},
		Synthetic: yes(), Truncated: yes(), RawLost: yes(), StartedAt: time.Unix(random.Int64N(1<<32), random.Int64N(1e9)).UTC(),
		Raw: record.Raw{Partition: random.Int32(), First: number(), Next: number(), Events: number()},
	}
	if yes() {
		at := r.StartedAt.Add(time.Duration(random.Int64N(1e12)))
		r.EndedAt = &at
	} else {
		r.Status = record.StatusRunning
	}
	if yes() {
		n := number()
		r.Stats.Duration, r.Input = &n, []byte(`{"state":1}`)
	}
	for range random.IntN(3) {
		r.Rewrote = append(r.Rewrote, text())
		r.Raw.Ranges = append(r.Raw.Ranges, [2]int64{number(), number()})
		r.Messages = append(r.Messages, agui.Message{})
	}
	head, err := EncodeHead(r, Facts{ErrorCode: text(), ErrorMessage: text(), CancelledBy: text(), Asked: text(), Question: text(), Reply: text(), Resumed: text()})
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// What is read quickly is what encoding/json reads, and all that EncodeHead writes is read quickly.
func TestDecodeHead_IsWhatJSONGives(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		text := randomHead(t, random)
		want, err := decodeHead(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, ok := readHead(text)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read quickly (%v) as\n%+v, want\n%+v", text, ok, got, want)
		}
	}
}

// What is damaged, or of another form, is left to encoding/json: quickly is read nothing that that refuses or takes for something else.
func TestDecodeHead_GivesUpOnOtherForms(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	damaged := 0
	for range 20_000 {
		text := randomHead(t, random)
		at := random.IntN(len(text))
		switch random.IntN(3) {
		case 0:
			text[at] = byte(random.UintN(256))
		case 1:
			text = append(text[:at:at], text[at+1:]...)
		default:
			text = text[:at]
		}
		got, ok := readHead(text)
		if !ok {
			damaged++
			continue
		}
		if want, err := decodeHead(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s is read quickly as\n%+v, want\n%+v, %v", text, got, want, err)
		}
	}
	if damaged < 10_000 {
		t.Errorf("only %d texts were damaged", damaged)
	}
	for _, text := range []string{
		`{ "run":{}}`, `{"run":{"messages":[]}}`, `{"run":{"depth":1.0}}`, `{"run":{"depth":01}}`, `{"run":{"depth":9223372036854775807}}`, `{"run":null}`,
		`{"run":{"raw":{"ranges":[[1]]}}}`, `{"run":{"raw":{"ranges":[[1,2,3]]}}}`, `{"run":{}}}`, `{"run":{"input":{"a":1}}}`, `{"more":1}`, `{}x`, ``,
	} {
		if _, ok := readHead([]byte(text)); ok {
			t.Errorf("%s is read quickly", text)
		}
	}
	if r, err := DecodeHead([]byte(`{ "run":{"depth":9223372036854775807} }`)); err != nil || int64(r.Depth) != math.MaxInt64 {
		t.Errorf("of another form: %+v, %v", r, err)
	}
}

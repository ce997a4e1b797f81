package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skeinhq/skein/pkg/agui"
	"github.com/skeinhq/skein/pkg/lineage"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/timeline"
)

// What a server says of a change, as it goes over the wire, leads from one history to the other, and leaves the first as it was.
func TestAfter_MakesWhatWasCompared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) lineage.History {
			h := lineage.History{State: json.RawMessage(rapid.SampledFrom([]string{
				`{}`, `{"n":1}`, `{"n":2,"a":[1,"<b>",{"c":null}]}`, `{"a":[1,{"c":12345678901234567890}],"z/~":{}}`, `[1,2]`, `[2]`, `"text"`, `null`, `7`,
			}).Draw(t, name+" state"))}
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 15), 0, 6).Draw(t, name) {
				text := []string{"a", "ab", `a<&>"\u00e9`, ""}[n%4]
				content, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				raw := fmt.Sprintf(`{"id":"m%d","role":"assistant","content":%s,"toolCalls":[{"id":"1","function":{"name":"f","arguments":%s}}]}`, n/4, content, content)
				if n%2 == 0 {
					raw = fmt.Sprintf(`{"id":"m%d","role":"user","content":%s}`, n/4, content)
				}
				h.Messages = append(h.Messages, agui.Message{ID: fmt.Sprintf("m%d", n/4), Role: "user", Raw: json.RawMessage(raw)})
			}
			return h
		}
		before, want := draw("before"), draw("after")
		change := timeline.Compare(before, want)
		wire, err := json.Marshal(change)
		if err != nil {
			t.Fatal(err)
		}
		var told timeline.Change
		if err := json.Unmarshal(wire, &told); err != nil {
			t.Fatal(err)
		}
		was := texts(t, before)
		got, err := after(before, told)
		if err != nil {
			t.Fatal(err)
		}
		if texts(t, got) != texts(t, want) {
			t.Errorf("%s makes %s of %s, want %s", wire, texts(t, got), was, texts(t, want))
		}
		if texts(t, before) != was {
			t.Errorf("what was before has become %s", texts(t, before))
		}
	})
}

// texts are messages and state, members in one order.
func texts(t rapid.TB, h lineage.History) string {
	t.Helper()
	var all []string
	for _, raw := range append([]json.RawMessage{h.State}, rawOf(h.Messages)...) {
		d := json.NewDecoder(strings.NewReader(string(raw)))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "\n")
}

func rawOf(messages []agui.Message) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range messages {
		out = append(out, m.Raw)
	}
	return out
}

func TestCondition(t *testing.T) {
	m := Moment{
		Step: Step{N: 3, Event: json.RawMessage(`{"type":"TOOL_CALL_START","toolCallName":"search"}`)},
		History: lineage.History{
			Messages: []agui.Message{{Raw: json.RawMessage(`{"id":"u","role":"user","content":"hello"}`)}, {Raw: json.RawMessage(`{"id":"a","role":"assistant","content":"world"}`)}},
			State:    json.RawMessage(`{"cart":{"total":120,"items":["a","b"]},"ok":true}`),
		},
	}
	for text, want := range map[string]string{
		`event.type == "TOOL_CALL_START"`:                            "true",
		`event.type.startsWith("TEXT_")`:                             "false",
		`state.cart.total > 100`:                                     "true",
		`state.cart.total == 120 && size(state.cart.items) == 2`:     "true",
		`messages.size() == 2 && messages[1].content.contains("or")`: "true",
		`messages.exists(m, m.role == "tool")`:                       "false",
		`messages.filter(m, m.role == "user").size() > 1`:            "false",
		`state.?cart.?discount.orValue(0) > 5`:                       "false",
		`has(state.user)`:                                            "false",
		`state.ok`:                                                   "true",
		`event.toolCallName.matches("^se.*h$")`:                      "true",
		`state.cart.discount > 5`:                                    "step 3: no such key: discount",
		`state.cart`:                                                 "step 3: the expression gives map, not bool",
		`messages[7].content == "x"`:                                 "step 3: index out of bounds: 7",
	} {
		c, err := NewCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for range 2 { // the second time of what it has decoded
			got, err := c.Holds(t.Context(), m)
			said := fmt.Sprint(got)
			if err != nil {
				said = err.Error()
			}
			if !strings.HasPrefix(said, want) {
				t.Errorf("%s: %s, want %s", text, said, want)
			}
		}
	}
	costly, err := NewCondition(strings.Repeat(`[0,1,2,3,4,5,6,7,8,9].all(a, `, 7) + `state.ok` + strings.Repeat(`)`, 7))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := costly.Holds(t.Context(), m); !errors.Is(err, ErrCost) {
		t.Errorf("a condition that costs too much: %v", err)
	}
	for text, want := range map[string]string{
		``:                  "Syntax error",
		`state.n >`:         "Syntax error",
		`run.id == "r"`:     "undeclared reference to 'run'",
		`1 + 1`:             "it gives int, not bool",
		`messages == "x"`:   "no matching overload",
		`state.n.foo(1, 2)`: "undeclared reference to 'foo'",
	} {
		if _, err := NewCondition(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// pages is a run whose n-th event makes the state n, adds a message at each tenth, and is an error at the 1500th.
type pages struct {
	total int
	asked []int
}

func (p *pages) page(_ context.Context, from, limit int) (*Page, error) {
	p.asked = append(p.asked, from)
	page := &Page{Total: p.total, Messages: []agui.Message{}, State: json.RawMessage(`{}`)}
	for n := range from {
		if n%10 == 0 && n > 0 {
			page.Messages = append(page.Messages, messageOf(n))
		}
		page.State = fmt.Appendf(nil, `{"n":%d}`, n)
	}
	for n := from; n < from+limit && n <= p.total; n++ {
		s := Step{N: n, Kind: record.KindEvent, Type: "CUSTOM", Event: json.RawMessage(`{"type":"CUSTOM"}`), Position: &record.Position{Partition: 3, Offset: int64(1000 + n)}}
		if n == 1500 {
			s.Event = json.RawMessage(`{"type":"RUN_ERROR","message":"x"}`)
		}
		s.Change.State = fmt.Appendf(nil, `[{"op":"add","path":"/n","value":%d}]`, n)
		if n%10 == 0 && n > 0 {
			s.Change.Messages = []timeline.MessageChange{{Op: timeline.Add, Index: n/10 - 1, Message: messageOf(n)}}
		}
		page.Steps = append(page.Steps, s)
	}
	if next := from + len(page.Steps); next <= p.total {
		page.Next = &next
	}
	return page, nil
}

func messageOf(n int) agui.Message {
	return agui.Message{ID: fmt.Sprint("m", n), Role: "user", Raw: fmt.Appendf(nil, `{"id":"m%d","role":"user","content":"%d"}`, n, n)}
}

func TestFind_StopsAtTheFirst(t *testing.T) {
	all := func(Step) bool { return true }
	for text, c := range map[string]struct {
		within func(Step) bool
		want   int
		asked  []int
	}{
		`state.n >= 1234`:      {all, 1234, []int{0, 1000}},
		`messages.size() == 3`: {all, 30, []int{0}},
		`messages.size() > 0 && messages[0].content == "10"`: {func(s Step) bool { return s.Position.Offset >= 1200 }, 200, []int{0}},
		`event.type == "RUN_ERROR"`:                          {all, 1500, []int{0, 1000}},
		`event.type == "RUN_ERROR" && state.n == 1500`:       {func(s Step) bool { return s.N > 1500 }, -1, []int{0, 1000, 2000}},
		`state.other == 1`:                                   {all, -1, []int{0, 1000, 2000}},
	} {
		condition, err := NewCondition(text)
		if err != nil {
			t.Fatal(err)
		}
		source := &pages{total: 2500}
		last := 0
		f, err := Find(t.Context(), source.page, condition, c.within, func(done, total int) {
			if done < last || total != 2501 {
				t.Errorf("%d of %d are done, after %d", done, total, last)
			}
			last = done
		})
		switch {
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case c.want < 0 && f.Moment != nil, c.want >= 0 && (f.Moment == nil || f.Moment.N != c.want):
			t.Errorf("%s: found %+v, want %d", text, f.Moment, c.want)
		case !slices.Equal(source.asked, c.asked):
			t.Errorf("%s: asked for %v, want %v", text, source.asked, c.asked)
		case (f.Undecided != nil) != strings.Contains(text, "other"):
			t.Errorf("%s: undecided: %v", text, f.Undecided)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	condition, err := NewCondition("false")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(ctx, (&pages{total: 10}).page, condition, all, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that has ended it says %v", err)
	}
}

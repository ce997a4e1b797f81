package timeline

import (
	"fmt"
	"testing"
)

func TestFinder_FindsWhatAReaderSees(t *testing.T) {
	delta := func(kind, id, text string) string {
		return fmt.Sprintf(`{"type":%q,"messageId":%q,"delta":%q}`, kind, id, text)
	}
	for name, c := range map[string]struct {
		text   string
		values []string
		want   int // the number of the first value that has it; -1 is none
	}{
		"a type":                          {"run_err", []string{`{"type":"RUN_STARTED"}`, `{"type":"RUN_ERROR","message":"x"}`}, 1},
		"any case":                        {"zürich", []string{`{"content":"In ZÜRICH"}`}, 0},
		"as it came, with an escape":      {`say \"a`, []string{`{"content":"say \"a\""}`}, 0},
		"without escapes":                 {`{"city":"Z`, []string{`{"content":"{\"city\":\"Zürich\"}"}`}, 0},
		"in a list, escaped as a number":  {"grün", []string{`{"delta":[{"value":"gr\u00fcn"}]}`}, 0},
		"over deltas of one message":      {"quiet st", []string{delta("T", "a", "a qui"), delta("T", "a", "et s"), delta("T", "a", "t")}, 2},
		"between deltas of another":       {"quiet", []string{delta("T", "a", "qu"), delta("T", "b", "x"), delta("T", "a", "iet")}, 2},
		"not over messages":               {"quiet", []string{delta("T", "a", "qu"), delta("T", "b", "iet")}, -1},
		"not over kinds":                  {"quiet", []string{delta("T", "a", "qu"), delta("R", "a", "iet")}, -1},
		"over chunks without an id":       {"quiet", []string{delta("T", "a", "q"), `{"type":"T","delta":"ui"}`, delta("T", "b", "x"), delta("T", "a", "et")}, 3},
		"not over chunks of messages":     {"quiet", []string{delta("T", "a", "qu"), delta("T", "b", "x"), `{"type":"T","delta":"iet"}`}, -1},
		"not over subagents":              {"quiet", []string{delta("T", "a", "qu"), `{"type":"T","delta":"iet","subagentRunId":"s"}`}, -1},
		"not once more in the next delta": {"quiet", []string{delta("T", "a", "quie"), delta("T", "a", "s")}, -1},
		"no JSON":                         {"non", []string{`{"type":"NONSENSE`}, 0},
		"nothing":                         {"x", []string{"", `{"delta":"\ud83d"}`, `{"delta":7}`, `\`}, -1},
	} {
		f, got := NewFinder(c.text), -1
		for i, v := range c.values {
			if f.Next([]byte(v)) && got < 0 {
				got = i
			}
		}
		if got != c.want {
			t.Errorf("%s: value %d, want %d", name, got, c.want)
		}
	}
}

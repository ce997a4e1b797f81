package agui_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

func TestDecode_RefusesMoreMessagesAndToolCallsThanMayBe(t *testing.T) {
	list := func(n int, one string) string { return "[" + strings.Repeat(one+",", n-1) + one + "]" }
	messages := func(n int) string { return list(n, `{"id":"m","role":"user","content":""}`) }
	calls := func(n int) string { // in two messages
		const call = `{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}`
		return fmt.Sprintf(`[{"id":"m","role":"assistant","toolCalls":%s},{"id":"n","role":"assistant","toolCalls":%s}]`,
			list(n/2, call), list(n-n/2, call))
	}
	const input = `{"threadId":"t","runId":"r","messages":%s}`
	decode := func(text string) error { _, err := agui.Decode([]byte(text)); return err }
	for name, decode := range map[string]func(list string) error{
		"input": func(list string) error {
			_, err := agui.DecodeInput(fmt.Appendf(nil, input, list), "r")
			return err
		},
		"input on RUN_STARTED": func(list string) error {
			return decode(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":`+input+`}`, list))
		},
		"snapshot": func(list string) error { return decode(`{"type":"MESSAGES_SNAPSHOT","messages":` + list + `}`) },
		"admission of an input": func(list string) error {
			_, err := new(agui.Event).Admit(fmt.Appendf(nil, `{"type":"RUN_STARTED","input":`+input+`}`, list))
			return err
		},
		"admission": func(list string) error {
			_, err := new(agui.Event).Admit([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":` + list + `}`))
			return err
		},
	} {
		for what, c := range map[string]struct {
			list func(n int) string
			most int
		}{
			"messages": {messages, agui.MaxMessages}, "tool calls": {calls, agui.MaxToolCalls},
			"strings": {func(n int) string { return list(n, `"x"`) }, agui.MaxMessages},
		} {
			if err := decode(c.list(c.most)); err != nil && !(what == "strings" && name == "snapshot") { // whose messages are objects
				t.Errorf("%s: %d %s: %v", name, c.most, what, err)
			}
			var refused *agui.MalformedError
			if err := decode(c.list(c.most + 1)); !errors.As(err, &refused) || refused.Rule != agui.RuleTooMany {
				t.Errorf("%s: %d %s: %v, want rule %s", name, c.most+1, what, err, agui.RuleTooMany)
			}
		}
	}
}

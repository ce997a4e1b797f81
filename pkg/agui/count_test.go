package agui_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

func TestDecode_RefusesMoreMessagesThanMaxMessages(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat(`"x",`, n-1) + `"x"]` }
	input := func(n int) string { return `{"threadId":"t","runId":"r","messages":` + list(n) + `}` }
	snapshot := func(n int) string {
		one := `{"id":"m","role":"user","content":""}`
		return "[" + strings.Repeat(one+",", n-1) + one + "]"
	}
	decode := map[string]func(n int) error{
		"input": func(n int) error { _, err := agui.DecodeInput([]byte(input(n)), "r"); return err },
		"input on RUN_STARTED": func(n int) error {
			_, err := agui.Decode([]byte(`{"type":"RUN_STARTED","threadId":"t","runId":"r","input":` + input(n) + `}`))
			return err
		},
		"snapshot": func(n int) error {
			_, err := agui.Decode([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":` + snapshot(n) + `}`))
			return err
		},
	}
	for name, decode := range decode {
		t.Run(name, func(t *testing.T) {
			if err := decode(agui.MaxMessages); err != nil {
				t.Errorf("%d messages: %v", agui.MaxMessages, err)
			}
			var refused *agui.MalformedError
			if err := decode(agui.MaxMessages + 1); !errors.As(err, &refused) || refused.Rule != agui.RuleTooMany {
				t.Errorf("one message more: %v, want rule %s", err, agui.RuleTooMany)
			}
		})
	}
}

func TestDecode_RefusesMoreToolCallsThanMaxToolCalls(t *testing.T) {
	const call = `{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}`
	messages := func(calls int) string { // in two messages
		list := func(n int) string { return "[" + strings.Repeat(call+",", n-1) + call + "]" }
		return `[{"id":"m","role":"assistant","toolCalls":` + list(calls/2) + `},{"id":"u","role":"user","content":"x"},{"id":"n","role":"assistant","toolCalls":` + list(calls-calls/2) + `}]`
	}
	decode := map[string]func(calls int) error{
		"input": func(n int) error {
			_, err := agui.DecodeInput([]byte(`{"threadId":"t","runId":"r","messages":`+messages(n)+`,"tools":[],"context":[]}`), "r")
			return err
		},
		"snapshot": func(n int) error {
			_, err := agui.Decode([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":` + messages(n) + `}`))
			return err
		},
		"admission": func(n int) error {
			_, err := agui.Admit([]byte(`{"type":"MESSAGES_SNAPSHOT","messages":` + messages(n) + `}`))
			return err
		},
	}
	for name, decode := range decode {
		t.Run(name, func(t *testing.T) {
			if err := decode(agui.MaxToolCalls); err != nil {
				t.Errorf("%d tool calls: %v", agui.MaxToolCalls, err)
			}
			var refused *agui.MalformedError
			if err := decode(agui.MaxToolCalls + 1); !errors.As(err, &refused) || refused.Rule != agui.RuleTooMany {
				t.Errorf("one tool call more: %v, want rule %s", err, agui.RuleTooMany)
			}
		})
	}
}

package agui_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

func members(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`"m` + strconv.Itoa(i) + `":[0,{"}":"\"{"}],`)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func TestAdmit_RefusesWhatItsSenderCanStillBeToldOf(t *testing.T) {
	for name, tc := range map[string]struct{ event, rule string }{
		"an event":                      {`{"type":"CUSTOM","name":"n","value":1,"timestamp":1767225600000}`, ""},
		"an unknown type":               {`{"type":"NEVER_HEARD_OF","timestamp":-5}`, ""},
		"timestamp 0":                   {`{"type":"CUSTOM","timestamp":-0.0}`, ""},
		"a timestamp that is no number": {`{"type":"CUSTOM","timestamp":"-5"}`, ""},
		"a time before 1970":            {`{"type":"CUSTOM","timestamp":-1}`, agui.RuleTime},
		"a time before 1970 in a float": {`{"type":"CUSTOM","timestamp":-1e3}`, agui.RuleTime},
		"as many members as may be":     {`{"type":"STATE_SNAPSHOT","snapshot":{` + members(agui.MaxMembers) + `}}`, ""},
		"a member too many":             {`{"type":"STATE_SNAPSHOT","snapshot":{` + members(agui.MaxMembers+1) + `}}`, agui.RuleTooMany},
		"many elements":                 {`{"type":"STATE_SNAPSHOT","snapshot":[` + strings.TrimSuffix(strings.Repeat("0,", 1_000_000), ",") + `]}`, ""},
		"not JSON":                      {`{"type":"CUSTOM"`, agui.RuleNotJSON},
	} {
		_, err := new(agui.Event).Admit([]byte(tc.event))
		var bad *agui.MalformedError
		if errors.As(err, &bad) {
			if bad.Rule != tc.rule {
				t.Errorf("%s: refused by rule %q, want %q: %v", name, bad.Rule, tc.rule, err)
			}
		} else if tc.rule != "" || err != nil {
			t.Errorf("%s: %v, want rule %q", name, err, tc.rule)
		}
	}
}

func TestAdmit_SaysWhatDecodeWouldRefuse(t *testing.T) {
	large := strings.Repeat("x", 64<<10)
	for name, tc := range map[string]struct {
		event      string
		unreadable bool
	}{
		"an event":                    {`{"type":"CUSTOM","name":"n","value":1e400}`, false},
		"a member is missing":         {`{"type":"CUSTOM","value":1}`, true},
		"a large one":                 {`{"type":"CUSTOM","value":"` + large + `"}`, true},
		"an unknown type":             {`{"type":"NEVER_HEARD_OF"}`, true},
		"a type in lower case":        {`{"type":"run_finished","threadId":"t","runId":"r"}`, true},
		"an end that is no JSON":      {`{"result":NaN,"type":"RUN_FINISHED"}`, true},
		"a large start":               {`{"type":"RUN_STARTED","threadId":"t","x":"` + large + `"}`, true},
		"an older form that may stay": {`{"type":"STATE_DELTA","patch":[]}`, false},
	} {
		var e agui.Event
		unreadable, err := e.Admit([]byte(tc.event))
		if err != nil || (unreadable != nil) != tc.unreadable {
			t.Errorf("%s: %v, %v", name, unreadable, err)
		}
	}
}

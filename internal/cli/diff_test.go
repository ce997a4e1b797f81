package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

const differenceAnswer = `{"threadId":"t","from":{"runId":"a","status":"finished","basis":"input"},
"to":{"runId":"b\u001b[2J","status":"running","basis":"inferred"},"commonAncestor":"root","same":false,
"onlyFrom":[{"id":"u1","role":"user","content":"book\na table"}],
"onlyTo":[{"id":"a2","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]},
 {"id":"r2","role":"tool","toolCallId":"c","content":"found"}],
"changed":[
 {"id":"a1","from":{"id":"a1","role":"assistant","content":"yes"},"to":{"id":"a1","role":"assistant","content":"no"},"patch":[{"op":"replace","path":"/content","value":"no"}]},
 {"id":"a0","from":{"id":"a0","role":"assistant","content":"x"},"to":{"id":"a0","role":"assistant","content":"x"},"patch":[{"op":"add","path":"/metadata","value":{"k":1}}]}],
"reordered":true,
"statePatch":[{"op":"remove","path":"/gone"},{"op":"add","path":"/new","value":[1]},{"op":"replace","path":"","value":"\u202e"}]}`

const differenceText = `thread t
- run a: finished
+ run b�[2J: running, starts from a parent that was guessed (no input was given), still going on
they part after run root

- user u1
-   book
-   a table

~ assistant a1
  - yes
  + no

~ assistant a0
  + /metadata = {"k":1}

+ assistant a2
+   → look({})

+ tool look r2
+   found

~ what both have is in another order

state
  - /gone
  + /new = [1]
  ~ all of it = "\u202e"
`

func TestDiff_ShowsAPersonWhatDiffers(t *testing.T) {
	show := func(answer string) string {
		t.Helper()
		var d difference
		if err := json.Unmarshal([]byte(answer), &d); err != nil {
			t.Fatal(err)
		}
		return d.text(newOutput(io.Discard, io.Discard, nil))
	}
	if got := show(differenceAnswer); got != differenceText {
		t.Errorf("got\n%s\nwant\n%s", got, differenceText)
	}
	if got, want := show(`{"threadId":"t","to":{"runId":"a","status":"finished"},"same":true,"statePatch":[]}`),
		"thread t\n- nothing: the run is a root\n+ run a: finished\n\nnothing differs\n"; got != want {
		t.Errorf("got %q", got)
	}
	if got := show(`{"threadId":"t","from":{"runId":"a"},"to":{"runId":"b"},"same":true,"statePatch":[]}`); !strings.Contains(got, "they have no run in common\n") {
		t.Errorf("got %q", got)
	}
	ops := strings.Repeat(`{"op":"remove","path":"/x"},`, stateLines+2)
	if got, want := show(fmt.Sprintf(`{"from":{},"to":{},"statePatch":[%s]}`, strings.TrimSuffix(ops, ","))), "  … 2 more operations; --json prints all\n"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q", got)
	}
}

package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

func TestBlame_SaysWhoChangedWhat(t *testing.T) {
	onShared(t, func(s *dev.Server, _ *client.Client) {
		at, ok0 := against(t, s)
		for i, events := range []string{
			`{"type":"STATE_SNAPSHOT","snapshot":{"cart":{"total":1}}}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"one"}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":" two"}
{"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":" three"}
{"type":"TOOL_CALL_CHUNK","toolCallId":"c","toolCallName":"find","parentMessageId":"a","delta":"{}"}
`,
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/cart/total","value":2}]}
`,
		} {
			run := fmt.Sprint("r", i)
			text := fmt.Sprintf("{\"type\":\"RUN_STARTED\",\"threadId\":\"blamed\",\"runId\":%q}\n%s{\"type\":\"RUN_FINISHED\",\"threadId\":\"blamed\",\"runId\":%q}\n", run, events, run)
			ok0("publish", writeFile(t, "run.jsonl", text))
		}
		// Positions and times are the server's.
		shown := func(text string) string {
			lines := strings.Split(strings.TrimSpace(text), "\n")
			for i, line := range lines {
				if _, change, ok := strings.Cut(line, "  run "); ok {
					lines[i] = change
				}
			}
			return strings.Join(lines, "|")
		}
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"blame", "blamed", "/cart/total"}, "r0, step 2: STATE_SNAPSHOT|  + 1|r1, step 2: STATE_DELTA|  - 1|  + 2"},
			{[]string{"blame", "blamed", "/cart/total", "--run", "r0"}, "r0, step 2: STATE_SNAPSHOT|  + 1"},
			{[]string{"blame", "blamed"}, `r0, step 2: STATE_SNAPSHOT|  - {}|  + {"cart":{"total":1}}|r1, step 2: STATE_DELTA|  - {"cart":{"total":1}}|  + {"cart":{"total":2}}`},
			{[]string{"blame", "blamed", "--message", "a"}, "r0, step 3: TEXT_MESSAGE_CHUNK|  + assistant: one|r0, step 4: TEXT_MESSAGE_CHUNK (2 events)|  … two three|r0, step 6: TOOL_CALL_CHUNK|  … → find({})"},
		} {
			if got := shown(ok0(c.args...)); got != c.want {
				t.Errorf("skein %v:\n%s\nwant\n%s", c.args, got, c.want)
			}
		}
		lines := strings.Split(strings.TrimSpace(ok0("blame", "blamed", "--message", "a", "--json")), "\n")
		if len(lines) != 4 {
			t.Fatalf("as JSON: %q", lines)
		}
		for i, line := range lines {
			var c placeChange
			if err := json.Unmarshal([]byte(line), &c); err != nil || c.RunID != "r0" || c.N == nil || *c.N != i+3 || c.Position == "" {
				t.Errorf("as JSON: %s (%v)", line, err)
			}
		}
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"blame", "blamed", "/nothing"}, 0, "no event of the chain changed it"},
			{[]string{"blame", "blamed", "cart"}, app.ExitUsage, "such as /cart/total"},
			{[]string{"blame", "blamed", "/cart", "--message", "a"}, app.ExitUsage, "give either PATH"},
			{[]string{"blame", "blamed", "/cart", "--run", "nobody"}, app.ExitNotFound, "there is no run nobody in thread blamed"},
			{[]string{"blame", "nowhere", "/cart"}, app.ExitNotFound, "there is no thread nowhere"},
		} {
			if stdout, stderr, code := skein(t, "", append(c.args, at)...); code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("skein %v: exit %d, %s%s", c.args, code, stdout, stderr)
			}
		}
	})
}

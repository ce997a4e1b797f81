package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/internal/client"
	"github.com/skeinhq/skein/internal/recordings"
)

func TestState_StopsAtAnyEvent(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		thread, ok := recordings.Find("ag-ui-adk", "tools")
		if !ok {
			t.Fatal("the recording is gone")
		}
		at, ok0 := against(t, s)
		for _, path := range files(t, thread, true) {
			ok0("publish", path, "--input", strings.TrimSuffix(path, ".jsonl")+".input.json")
		}
		last := thread.Runs[len(thread.Runs)-1]
		total := len(last.Lines())
		var end, history struct {
			RunID           string
			N, Total        int
			Messages, State any
		}
		if err := json.Unmarshal([]byte(ok0("state", thread.ThreadID, "--json")), &end); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(ok0("history", thread.ThreadID, "--json")), &history); err != nil {
			t.Fatal(err)
		}
		if canonical(t, end.Messages) != canonical(t, history.Messages) || canonical(t, end.State) != canonical(t, history.State) ||
			end.RunID != last.RunID || end.N != total || end.Total != total {
			t.Errorf("at its end the run is %+v, its history %+v", end, history)
		}
		begin := fmt.Sprintf("step 0 of %d: the start, by the run's input, at ", total)
		if text := ok0("state", thread.ThreadID, last.RunID, "--at", "0"); !strings.HasPrefix(text, begin) || !strings.Contains(text, "\n+ user ") || !strings.Contains(text, "\nstate\n") {
			t.Errorf("at its start, for people: %s", text)
		}
		grown := false
		for n := range total {
			text := ok0("state", thread.ThreadID, last.RunID, "--at", fmt.Sprint(n+1))
			if !strings.HasPrefix(text, fmt.Sprintf("step %d of %d: ", n+1, total)) {
				t.Errorf("step %d: %s", n+1, text)
			}
			grown = grown || strings.Contains(text, "\n~ message ") && strings.Contains(text, "\n  + ")
		}
		if !grown {
			t.Error("no step shows a message that grew")
		}
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"state", thread.ThreadID, last.RunID, "--at", fmt.Sprint(total + 1)}, app.ExitNotFound, fmt.Sprintf("to %d", total)},
			{[]string{"state", thread.ThreadID, "nobody"}, app.ExitNotFound, "there is no run nobody in thread"},
			{[]string{"state", "nowhere"}, app.ExitNotFound, "there is no thread nowhere"},
			{[]string{"state", thread.ThreadID, "--at", "soon"}, app.ExitUsage, "--at must be the number of a step"},
			{[]string{"state"}, app.ExitUsage, "usage: skein state THREAD [RUN]"},
		} {
			if stdout, stderr, code := skein(t, "", append(c.args, at)...); code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("skein %v: exit %d, %s%s", c.args, code, stdout, stderr)
			}
		}
	})
}

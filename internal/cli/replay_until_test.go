package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

func TestReplay_StopsWhereAConditionIsTrue(t *testing.T) {
	onShared(t, func(s *dev.Server, c *client.Client) {
		events := []string{
			in("until", eventStart),
			`{"type":"STATE_SNAPSHOT","snapshot":{ "n" : 1 }}`,
			`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","role":"assistant","delta":"how"}`,
			`{"type":"TEXT_MESSAGE_CHUNK","delta":" are you"}`,
			`{"type":"STATE_DELTA","delta":[{"op":"replace","path":"/n","value":7}]}`,
			`{"type":"RUN_ERROR","message":"out of tokens"}`,
		}
		if _, err := c.PostEvents(t.Context(), "until", "r", client.TypeNDJSON, strings.NewReader(strings.Join(events, "\n"))); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		until := func(expression string, more ...string) (string, string, int) {
			return skein(t, "", append([]string{"replay", "until", "r", "--url", s.URL(), "--until", expression}, more...)...)
		}
		for expression, n := range map[string]int{
			`state.n > 5`: 5,
			`messages.exists(m, m.content.contains("are"))`: 4,
			`event.type == "RUN_ERROR"`:                     6,
			`true`:                                          1,
		} {
			stdout, stderr, code := until(expression)
			want := fmt.Sprintf("stopped at %s, event %d of the run: %s\n", position(t, s, "until", int64(n-1)), n, expression)
			if code != 0 || stdout != strings.Join(events[:n], "\n")+"\n" || stderr != want {
				t.Errorf("%s: exit %d, %s%swant %s", expression, code, stdout, stderr, want)
			}
		}
		if stdout, stderr, code := until(`state.n > 5`, "--range", position(t, s, "until", 2), "--type", "STATE_DELTA"); code != 0 || stdout != events[4]+"\n" {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
		for want, args := range map[string][]string{
			`state.n > 5 was true at none of 3 events`: {`state.n > 5`, "--range", ":" + position(t, s, "until", 3)},
			`state.m > 5 was true at none of 6 events; the last event at which it could not be evaluated: step 6: no such key: m`: {`state.m > 5`},
		} {
			stdout, stderr, code := until(args[0], args[1:]...)
			if code != app.ExitNotFound || stdout != "" || !strings.Contains(stderr, want) {
				t.Errorf("%v: exit %d, %s%swant %s", args, code, stdout, stderr, want)
			}
		}
		if _, stderr, code := skein(t, "", "replay", "until", "nobody", "--url", s.URL(), "--until", "true"); code != app.ExitNotFound ||
			!strings.Contains(stderr, "there is no run nobody") {
			t.Errorf("exit %d, %s", code, stderr)
		}
	})
}

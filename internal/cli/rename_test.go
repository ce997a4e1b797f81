package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/app/dev"
	"github.com/skeinhq/skein/pkg/client"
)

// From the command to the topic, the compactor, the index and back.
func TestRename_AThreadHasATitleAndIsArchivedUntilItIsErased(t *testing.T) {
	withServer(t, t.TempDir(), func(s *dev.Server, _ *client.Client) {
		at := "--url=" + s.URL()
		run := func(want int, args ...string) (stdout, stderr string) {
			t.Helper()
			stdout, stderr, code := skein(t, "", append(args, at)...)
			if code != want {
				t.Fatalf("skein %q: exit %d: %s%s", args, code, stdout, stderr)
			}
			return stdout, stderr
		}
		threads := func(what, want string, args ...string) {
			t.Helper()
			stdout, _ := run(app.ExitDone, append([]string{"threads", "--sort", "id"}, args...)...)
			var got []string
			for line := range strings.Lines(stdout) {
				f := strings.Split(line, "\t")
				got = append(got, f[0]+" "+f[1]+" "+f[3])
			}
			if all := strings.Join(got, ", "); all != want {
				t.Errorf("%s: %q, want %q", what, all, want)
			}
		}
		first := strings.Join([]string{eventStart, eventText, eventEnd}, "\n")
		for _, thread := range []string{"t", "u"} {
			if _, stderr, code := skein(t, strings.ReplaceAll(first, `"t"`, `"`+thread+`"`), "publish", at); code != app.ExitDone {
				t.Fatalf("publishing: exit %d: %s", code, stderr)
			}
			run(app.ExitDone, "history", thread) // waits for the index
		}
		if text, _ := run(app.ExitDone, "rename", "t", "Zug nach Oslo"); text != "thread t has the title \"Zug nach Oslo\"\n" {
			t.Errorf("rename says %q", text)
		}
		threads("with a title", "t Zug nach Oslo finished, u  finished")
		threads("found by its title", "t Zug nach Oslo finished", "OSLO")
		if text, _ := run(app.ExitDone, "archive", "t"); text != "thread t is archived\n" {
			t.Errorf("archive says %q", text)
		}
		threads("archived", "u  finished")
		threads("archived ones", "t Zug nach Oslo finished (archived)", "--archived", "yes")
		threads("both", "t Zug nach Oslo finished (archived), u  finished", "--archived", "all")
		if text, _ := run(app.ExitDone, "runs", "--words", "oslo", "--archived", "yes", "-o", "name"); !strings.Contains(text, "t\t") {
			t.Errorf("runs by words of the title: %q", text)
		}
		run(app.ExitDone, "archive", "t", "--undo")
		threads("not archived any more", "t Zug nach Oslo finished, u  finished")
		text, _ := run(app.ExitDone, "rename", "t", "", "--json")
		var p patched
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.ThreadID != "t" || !strings.Contains(p.Position, ":") {
			t.Errorf("as JSON: %s, %v", text, err)
		}
		threads("without its title", "t  finished, u  finished")

		if _, stderr := run(app.ExitDone, "rename", "never there", "a title"); !strings.Contains(stderr, "once it has a run") {
			t.Errorf("of a thread that is not there: %s", stderr)
		}
		if _, stderr := run(app.ExitFailed, "rename", "t", "two\nlines"); !strings.Contains(stderr, "without line feeds") {
			t.Errorf("a title of two lines: %s", stderr)
		}
		run(app.ExitUsage, "rename", "t")
		run(app.ExitUsage, "threads", "--archived", "maybe")

		run(app.ExitDone, "rename", "t", "secret")
		run(app.ExitDone, "archive", "t")
		run(app.ExitDone, "erase", "t", "--yes")
		if _, stderr, code := skein(t, first, "publish", at); code != app.ExitDone {
			t.Fatalf("publishing: exit %d: %s", code, stderr)
		}
		run(app.ExitDone, "history", "t")
		threads("a new thread of the same id", "t  finished, u  finished", "--archived", "all")
	})
}

package query

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/skeinhq/skein/pkg/agui"
)

// diffBody is an answer as a caller reads it.
type diffBody struct {
	From           *struct{ RunID, Basis string } `json:"from"`
	To             struct{ RunID, Basis string }  `json:"to"`
	CommonAncestor string                         `json:"commonAncestor"`
	Same           bool                           `json:"same"`
	OnlyFrom       []agui.Message                 `json:"onlyFrom"`
	OnlyTo         []agui.Message                 `json:"onlyTo"`
	Changed        []struct {
		ID              string
		From, To, Patch json.RawMessage
	} `json:"changed"`
	Reordered  bool            `json:"reordered"`
	StatePatch json.RawMessage `json:"statePatch"`
	IndexedTo  string          `json:"indexedTo"`
}

func ids(messages []agui.Message) string {
	var out []string
	for _, m := range messages {
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

func TestDiff_ComparesTwoRuns(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	f.put(run("chat", "elsewhere", 5, msg("u9", "user", "another tree")))
	for name, c := range map[string]struct {
		query, from, to, ancestor, onlyFrom, onlyTo, changed, state string
	}{
		"two branches":                       {"from=leaf&to=right", "leaf", "right", "root", "a1 u2 a3", "u4", "", `[{"op":"replace","path":"/n","value":1}]`},
		"an ancestor":                        {"from=root&to=leaf", "root", "leaf", "root", "", "u2 a3", "a1", `[{"op":"replace","path":"/n","value":3}]`},
		"a descendant":                       {"from=leaf&to=root", "leaf", "root", "root", "u2 a3", "", "a1", `[{"op":"replace","path":"/n","value":1}]`},
		"what a run changed":                 {"to=left", "root", "left", "root", "", "u2", "a1", `[]`},
		"what a root changed":                {"to=root", "", "root", "", "", "u1 a1", "", `[{"op":"add","path":"/n","value":1}]`},
		"the tip, where nothing is said":     {"", "", "elsewhere", "", "", "u9", "", `[]`},
		"two trees":                          {"from=root", "root", "elsewhere", "", "u1 a1", "u9", "", `[{"op":"remove","path":"/n"}]`},
		"a run with itself: nothing differs": {"from=left&to=left", "left", "left", "left", "", "", "", `[]`},
	} {
		t.Run(name, func(t *testing.T) {
			var d diffBody
			f.json("/v1/threads/chat/diff?"+c.query, &d)
			from := ""
			if d.From != nil {
				from = d.From.RunID
			}
			changed := ""
			for _, ch := range d.Changed {
				changed += ch.ID
				if got := apply(t, ch.From, ch.Patch); !jsonpatch.Equal(got, ch.To) {
					t.Errorf("the patch of message %s makes %s, want %s", ch.ID, got, ch.To)
				}
			}
			if from != c.from || d.To.RunID != c.to || d.CommonAncestor != c.ancestor || d.IndexedTo != "3:59" {
				t.Errorf("from %q to %q over %q, indexed to %s", from, d.To.RunID, d.CommonAncestor, d.IndexedTo)
			}
			if ids(d.OnlyFrom) != c.onlyFrom || ids(d.OnlyTo) != c.onlyTo || changed != c.changed || string(d.StatePatch) != c.state {
				t.Errorf("only from %q, only to %q, changed %q, state %s", ids(d.OnlyFrom), ids(d.OnlyTo), changed, d.StatePatch)
			}
			if same := c.onlyFrom+c.onlyTo+c.changed == "" && c.state == "[]"; d.Same != same {
				t.Errorf("same is %t", d.Same)
			}

			var left, right historyBody
			left.State = json.RawMessage(`{}`)
			if from != "" {
				f.json("/v1/threads/chat/runs/"+from+"/history", &left)
			}
			f.json("/v1/threads/chat/runs/"+d.To.RunID+"/history", &right)
			if got := apply(t, left.State, d.StatePatch); !jsonpatch.Equal(got, right.State) {
				t.Errorf("the patch makes %s, want %s", got, right.State)
			}
		})
	}
}

// apply applies a patch by another implementation than the one that made it.
func apply(t *testing.T, doc, patch json.RawMessage) json.RawMessage {
	t.Helper()
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply(doc)
	if err != nil {
		t.Fatalf("applying %s to %s: %v", patch, doc, err)
	}
	return out
}

func TestDiff_SaysWhatItRestsOn(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	var d diffBody
	f.json("/v1/threads/chat/diff?from=root&to=leaf", &d)
	if d.From.Basis != "input" || d.To.Basis != "inferred" {
		t.Errorf("from %+v, to %+v", d.From, d.To)
	}
	if body := f.get("acme", "/v1/threads/chat/diff?from=root&to=leaf").body; !strings.Contains(body, `"parentInferred":true`) {
		t.Error("a guessed parent is not marked")
	}
}

func TestDiff_RefusesWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	conversation(f)
	f.get("acme", "/v1/threads/chat/diff?from=nobody").problem(t, http.StatusNotFound)
	f.get("acme", "/v1/threads/chat/diff?to=nobody").problem(t, http.StatusNotFound)
	f.get("acme", "/v1/threads/nowhere/diff").problem(t, http.StatusNotFound)
	for _, bad := range []string{"from=", "to=", "to=..", "from=%ff"} {
		f.get("acme", "/v1/threads/chat/diff?"+bad).problem(t, http.StatusBadRequest)
	}
}

package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/skeinhq/skein/test/process"
)

type mutant struct{ name, file, old, new string }

// mutants are small faults put into the fold. The generated streams have to catch every one of them:
// a generator that lets one through does not prove what it claims.
var mutants = []mutant{
	{"a second start makes a second message", "apply.go", "	m := r.conv.find(id)\n	if m == nil {\n		m = newMessage(id, role,", "	m := r.conv.find(id)\n	if m == nil || m.role == role {\n		m = newMessage(id, role,"},
	{"results go to the end", "apply.go", "	caller, _ := r.conv.caller(call)\n	if caller == nil {", "	caller, _ := r.conv.caller(call)\n	if caller == nil || caller != r.conv.list[0] {"},
	{"results are inserted before other results", "conversation.go", "	for i < len(c.list) && c.list[i].role == agui.RoleTool {\n		i++\n	}", ""},
	{"a message that came in front is overlooked", "conversation.go", "first != m && c.index(first) > i {", "first == nil {"},
	{"a snapshot replaces a message in its first place alone", "conversation.go", "			c.occupy(by)\n", "			if by.places > 0 {\n				by = fromMessage(by.export())\n			}\n			c.occupy(by)\n"},
	{"an operation that nobody knows fails the patch", "patch.go", "		p.stripped++ // the client's enforcement also removes it, whatever its members\n		return nil", "		return errIndex"},
	{"a snapshot forgets reasoning", "apply.go", "return hasReasoning", "return true"},
	{"a snapshot keeps activities it owns", "apply.go", "owned.At(m.activityType())", "owned.At(m.activityType()+\"?\")"},
	{"a known call is made again", "apply.go", "if m, c := r.conv.owner(call); c != nil {",
		"if m, c := r.conv.owner(call); c != nil && c.named(name) {"},
	{"CUSTOM leaves chunk lanes open", "chunk.go", "	case agui.Raw, agui.ActivitySnapshot,",
		"	case agui.Custom, agui.Raw, agui.ActivitySnapshot,"},
	{"whoever closes a lane closes the parent agent's", "chunk.go", "r.closeLane(r.p.lanes.byOwner.At(o))",
		"r.closeLane(r.p.lanes.byOwner.At(owner{}))"},
	{"calls outlive the message whose place an activity takes", "conversation.go", "	if before.places == 0 && c.holding {",
		"	if false {"},
	{"calls outlive messages that a snapshot removes", "conversation.go", "	c.release(calls)\n", "	_ = calls\n"},
	{"metadata is replaced, not merged", "value.go", "	if !ok {\n		merged = &object{}",
		"	if !ok || len(metadata) > 2 {\n		merged = &object{}"},
	{"a failed patch leaves its traces", "patch.go", "slices.Backward(p.undo) {", "slices.Backward(p.undo[:0]) {"},
	{"a test of what is missing passes", "patch.go", "if have = at.value(); have == nil {\n				return errTest",
		"if have = at.value(); have == nil {\n				return nil"},
	{"a test compares numbers as they are spelled", "tree.go", "	return a == b\n}", "	return a == b && string(n) == string(o)\n}"},
	{"a test compares strings as they are spelled", "tree.go", "agui.TextOf(n).Equal(agui.TextOf(o))", "string(n) == string(o)"},
	{"what is copied is changed with its copy", "patch.go", "		source = &node{text: text, spans: spans, deep: int32(depth + 1)}\n", "		_ = spans\n"},
	{"a broken rule is not counted", "verify.go", "	v.agree(&v.Owners.Activity, id, o)\n", ""},
	{"what was open is forgotten in a checkpoint", "verify.go", "`json:\"steps,omitzero\"`", "`json:\"-\"`"},
	{"replace: false replaces", "apply.go", `string(ev.JSON(agui.FieldReplace)) != "false"`, `string(ev.JSON(agui.FieldReplace)) != "no"`},
}

// testStreams folds the generated streams and compares.
var testStreams = []string{"test", "./test/conformance", "-count=1", "-timeout=30m", "-run", "^TestGenerated_", "-failfast",
	"-rapid.checks=20000", "-rapid.shrinktime=1ms", "-rapid.nofailfile", "-failed="}

// overlay builds the fold with the mutant in it.
func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	return process.Overlay(t, filepath.Join("..", "..", "pkg", "compact", m.file), m.old, m.new)
}

// A change of the fold that leaves a mutant without its place is told at once, not in the next long run.
func TestMutants_FindTheirPlaces(t *testing.T) {
	for _, m := range mutants {
		m.overlay(t)
	}
}

// TestMutants_AreCaught builds each mutant with an overlay and has the generated streams fold with it. It is slow (a
// build each), so it runs where SKEIN_MUTANTS=1 asks for it: make mutants.
func TestMutants_AreCaught(t *testing.T) {
	if os.Getenv("SKEIN_MUTANTS") != "1" {
		t.Skip("slow: run make mutants")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// Without a fault nothing is caught: else what follows proves nothing.
	control := exec.CommandContext(t.Context(), "go", testStreams...)
	control.Dir = root
	if out, err := control.CombinedOutput(); err != nil {
		t.Fatalf("the fold differs from the client without a fault put into it:\n%s", out)
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", append(slices.Clone(testStreams), "-overlay", m.overlay(t))...)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Error("the generated streams did not catch it")
			case strings.Contains(string(out), "goroutine stack exceeds"):
				t.Log("caught: a document came to hold itself") // what a copy that shares its value leads to
			case !strings.Contains(string(out), "[rapid] failed after"):
				t.Errorf("it failed for another reason:\n%s", out)
			default:
				_, after, _ := strings.Cut(string(out), "[rapid] failed after ")
				how, _, _ := strings.Cut(after, "\n")
				t.Logf("caught after %.160s", how)
			}
		})
	}
}

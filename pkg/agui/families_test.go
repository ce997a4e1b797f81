package agui

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestFamilies_NameEachTypeThatFoldsToNothing(t *testing.T) {
	of := map[Type]string{
		StepStarted: "step", StepFinished: "step", SubagentStarted: "subagent", SubagentFinished: "subagent", SubagentError: "subagent",
		Custom: "custom", Meta: "meta", Raw: "raw", "SOMETHING_NEW": "unknown",
	}
	for _, name := range FamilyNames() {
		only, err := FamiliesOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for typ, family := range of {
			if only.Keep(typ) != (family == name) {
				t.Errorf("%s alone: %s kept: %v", name, typ, only.Keep(typ))
			}
		}
		if only.Keep(TextMessageContent) || only.Keep(RunStarted) || only.Keep(ThinkingStart) || only.Keep(StateDelta) {
			t.Errorf("%s alone keeps what folds to something", name)
		}
	}
	var usual Families
	for typ, family := range of {
		if usual.Keep(typ) != (family != "raw") {
			t.Errorf("unless somebody says otherwise: %s kept: %v", typ, usual.Keep(typ))
		}
	}
}

func TestFamilies_AreTheSameAsTextAndJSON(t *testing.T) {
	for text, names := range map[string]string{
		"none": `[]`, "step,subagent,custom,meta,unknown": `["step","subagent","custom","meta","unknown"]`,
		"raw": `["raw"]`, "raw, custom": `["custom","raw"]`,
	} {
		var f, again Families
		if err := f.UnmarshalText([]byte(text)); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(f)
		if err != nil || string(b) != names {
			t.Errorf("%s is %s (%v), want %s", text, b, err, names)
		}
		if err := json.Unmarshal(b, &again); err != nil || again != f {
			t.Errorf("%s read back is %s (%v)", b, again, err)
		}
		if err := again.UnmarshalText([]byte(f.String())); err != nil || again != f {
			t.Errorf("%q read back is %s (%v)", f.String(), again, err)
		}
	}
	if f := Families(0); !slices.Equal(f.Names(), []string{"step", "subagent", "custom", "meta", "unknown"}) {
		t.Errorf("unless somebody says otherwise: %s", f)
	}
	for _, text := range []string{"", "steps", "step,", "step none", "RAW"} {
		var f Families
		err := f.UnmarshalText([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "step, subagent, custom, meta, unknown, raw") {
			t.Errorf("%q: %v, want the names that there are", text, err)
		}
	}
	if err := new(Families).UnmarshalJSON([]byte(`"step"`)); err == nil {
		t.Error("a list is wanted")
	}
}

package lint_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/skeinhq/skein/pkg/lint"
)

// The log is SARIF 2.1.0 by its official schema, and a reader of it has all of it.
func TestSARIF_IsValid(t *testing.T) {
	var found []lint.Finding
	for name, body := range map[string]string{
		"a%20b/run%231.sse":            "data: " + started + "\n\ndata: {\"type\":\"STATE_DELTA\",\"patch\":[]}\n\n",
		"http://agent.example/run%201": "<html>",
	} {
		l := lint.New(name, nil, func(f lint.Finding) { found = append(found, f) })
		if err := l.ReadSSE(strings.NewReader(body), 1); err != nil {
			t.Fatal(err)
		}
		l.End()
	}
	for _, findings := range [][]lint.Finding{nil, found} {
		b, err := json.Marshal(lint.SARIF("1.2.3", findings))
		if err != nil {
			t.Fatal(err)
		}
		log, err := sarif.FromBytes(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Validate(); err != nil {
			t.Error(err)
		}
		if n := len(log.Runs[0].Results); n != len(findings) {
			t.Errorf("a reader has %d results, want %d", n, len(findings))
		}
		if n := len(log.Runs[0].Tool.Driver.Rules); n != len(lint.Rules()) {
			t.Errorf("a reader has %d rules, want %d", n, len(lint.Rules()))
		}
		var ours, theirs any
		read, err := json.Marshal(log)
		if err != nil {
			t.Fatal(err)
		}
		for b, v := range map[*any][]byte{&ours: b, &theirs: read} {
			if err := json.Unmarshal(v, b); err != nil {
				t.Fatal(err)
			}
		}
		if missing := lacks(theirs, ours, ""); missing != "" {
			t.Errorf("a reader does not know %s", missing)
		}
	}
}

// lacks returns where one value does not have what another one has, or "".
func lacks(v, all any, path string) string {
	switch all := all.(type) {
	case map[string]any:
		v, _ := v.(map[string]any)
		for name, m := range all {
			if missing := lacks(v[name], m, path+"/"+name); missing != "" {
				return missing
			}
		}
	case []any:
		v, _ := v.([]any)
		for i, m := range all {
			if i >= len(v) {
				return path
			}
			if missing := lacks(v[i], m, path+"/0"); missing != "" {
				return missing
			}
		}
	default:
		if v != all {
			return path
		}
	}
	return ""
}

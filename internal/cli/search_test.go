package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// A single measure has bars, if there is room; several have none.
func TestStatistics_DrawsBars(t *testing.T) {
	var a statisticsAnswer
	if err := json.Unmarshal([]byte(`{"by":["agent"],"measures":["runs"],"groups":[
		{"by":{"agent":""},"values":{"runs":16}},{"by":{"agent":"desk\u001b[31m"},"values":{"runs":1}},{"by":{"agent":"shop"},"values":{"runs":null}}]}`), &a); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := printStatistics(newOutput(&text, &text, nil), a, 50); err != nil {
		t.Fatal(err)
	}
	want := "agent      runs\n-            16  " + strings.Repeat("█", 30) + "\ndesk�[31m     1  █\nshop          -\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", text.String(), want)
	}
	a.Measures = append(a.Measures, "errors")
	text.Reset()
	if err := printStatistics(newOutput(&text, &text, nil), a, 200); err != nil || strings.Contains(text.String(), "█") {
		t.Errorf("two measures: %v\n%s", err, text.String())
	}
}

package compact

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skeinhq/skein/pkg/agui"
)

// agentState is a state of about size bytes, as delta changes it.
func agentState(size int) json.RawMessage {
	const row = `{"id":%d,"name":"row number %d","tags":["a","b","c"],"score":%d.5,"open":true},`
	var rows strings.Builder
	for i := 0; rows.Len() < size; i++ {
		fmt.Fprintf(&rows, row, i, i, i)
	}
	return json.RawMessage(`{"progress":0,"phase":"plan","rows":[` + strings.TrimSuffix(rows.String(), ",") +
		`],"steps":[{"name":"search","status":"pending"},{"name":"read","status":"pending"},{"name":"write","status":"pending"}],` +
		`"notes":[],"totals":{"tokens":0,"cost":0.5}}`)
}

// delta is the i-th patch of an agent that reports what it does: four operations.
func delta(i int) string {
	return fmt.Sprintf(`{"op":"replace","path":"/progress","value":%d},{"op":"replace","path":"/steps/%d/status","value":"done"},`+
		`{"op":"add","path":"/notes/-","value":"a note of what was found in step %d"},{"op":"replace","path":"/totals/tokens","value":%d}`, i, i%3, i, 7*i)
}

// A delta of four operations allocates its four values, two times each, but nothing to read it and to follow its paths.
func TestRun_ADeltaAllocatesItsValues(t *testing.T) {
	const deltas, limit = 100, 12
	r := New(nil, agentState(10<<10))
	lines := make([][]byte, 1+deltas)
	for i := range lines {
		lines[i] = fmt.Appendf(nil, `{"type":"STATE_DELTA","delta":[%s]}`, delta(i))
	}
	var ev agui.Event
	got := testing.AllocsPerRun(deltas, func() {
		err := ev.Decode(lines[0])
		if err == nil {
			err = r.Apply(&ev)
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = lines[1:]
	})
	if got > limit {
		t.Errorf("a delta allocates %v times, want at most %d", got, limit)
	}
	if failed := r.Summary().Anomalies["state-patch-failed"]; failed > 0 {
		t.Errorf("%d deltas failed: the test does not do what it says", failed)
	}
}

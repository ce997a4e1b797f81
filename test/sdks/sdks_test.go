package sdks

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
)

// The ids are UUIDs, since the Rust SDK takes no others.
const (
	thread = "7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a100%d"
	answer = `{"type":"RUN_STARTED","threadId":$THREAD,"runId":$RUN}
{"type":"TEXT_MESSAGE_START","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2001","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2001","delta":"Let me "}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2001","delta":"look in Zürich."}
{"type":"TEXT_MESSAGE_END","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2001"}
{"type":"TEXT_MESSAGE_START","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2002","role":"assistant"}
{"type":"TEXT_MESSAGE_CONTENT","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2002","delta":"12 °C."}
{"type":"TEXT_MESSAGE_END","messageId":"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2002"}
{"type":"RUN_FINISHED","threadId":$THREAD,"runId":$RUN}`
)

var texts = map[string]string{
	"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2001": "Let me look in Zürich.",
	"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a2002": "12 °C.",
}

// TestSDKs_RunAndRestore builds each program, which takes minutes at first, and runs it.
func TestSDKs_RunAndRestore(t *testing.T) {
	if os.Getenv("SKEIN_SDKS") == "" {
		t.Skip("make sdks runs it: SDKs of other languages")
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var input struct{ ThreadID, RunID json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&input); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		ids := strings.NewReplacer("$THREAD", string(input.ThreadID), "$RUN", string(input.RunID))
		for event := range strings.SplitSeq(answer, "\n") {
			_, _ = fmt.Fprintf(w, "data: %s\n\n", ids.Replace(event)) // a caller that has left gets no more
		}
	}))
	defer agent.Close()
	server := devtest.Start(t, devtest.Agents(t, "assistant="+agent.URL))
	built := t.TempDir()
	for i, sdk := range []struct {
		name    string
		build   []string
		program string
	}{
		{"go", []string{"go", "build", "-o", filepath.Join(built, "go"), "."}, filepath.Join(built, "go")},
		{"rust", []string{"cargo", "build", "--locked", "--quiet"}, target(t)},
	} {
		t.Run(sdk.name, func(t *testing.T) {
			build := exec.CommandContext(t.Context(), sdk.build[0], sdk.build[1:]...)
			build.Dir = sdk.name
			build.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			id := fmt.Sprintf(thread, i)
			run := exec.CommandContext(t.Context(), sdk.program, server.URL()+"/v1/agents/assistant", server.URL()+"/v1/connect", id,
				"7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a3001", "7b1d7c2e-9a53-4c0a-8f1e-0d4e3b2a3002")
			run.Stderr = os.Stderr
			out, err := run.Output()
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			if len(lines) != 2 {
				t.Fatalf("it printed %s", out)
			}
			for _, line := range lines {
				var got map[string]string
				if err := json.Unmarshal([]byte(line), &got); err != nil || !reflect.DeepEqual(got, texts) {
					t.Errorf("it holds %s (%v), want %v", line, err, texts)
				}
			}
		})
	}
}

// target is the Rust program.
func target(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("CARGO_TARGET_DIR")
	if folder == "" {
		folder = filepath.Join("rust", "target")
	}
	path, err := filepath.Abs(filepath.Join(folder, "debug", "skein-sdk-smoke"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

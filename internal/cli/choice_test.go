package cli

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/skeinhq/skein/internal/app"
)

// Whatever has --json has -o as well, but for commands that print JSON anyway. A form that a command does not have is wrong usage.
func TestOutput_IsChosenTheSameWayEverywhere(t *testing.T) {
	var stdout, stderr bytes.Buffer
	var with, without []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Flags().Lookup("json") == nil {
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "skein ")
		flag := cmd.Flags().Lookup("output")
		if flag == nil {
			without = append(without, name)
			return
		}
		with = append(with, name)
		if flag.Shorthand != "o" {
			t.Errorf("skein %s: -%s is short for --output", name, flag.Shorthand)
		}
		err := run(t.Context(), append(strings.Fields(name), "-o", "no-such-form"), nil, strings.NewReader(""), &stdout, &stderr)
		if code := app.ExitCode(err); code != app.ExitUsage || !strings.Contains(err.Error(), "want ") {
			t.Errorf("skein %s -o no-such-form: exit %d, %v", name, code, err)
		}
	}
	walk(newRoot(newOutput(&stdout, &stderr, nil), strings.NewReader("")))
	slices.Sort(without)
	if want := []string{"export", "fold"}; !slices.Equal(without, want) {
		t.Errorf("--json without -o: %v, want %v", without, want)
	}
	if len(with) < 20 {
		t.Errorf("only %v have -o", with)
	}
}

func TestOutput_Forms(t *testing.T) {
	answers := map[string]string{
		"/v1/threads/t/history": `{"threadId":"t","runId":"r","status":"finished","messages":[{"id":"u1","role":"user","content":"a"}, {"id":"a1","role":"assistant","content":"b"}],"state":{}}`,
		"/v1/statistics":        `{"by":["agent"],"measures":["runs"],"groups":[{"by":{"agent":"a"},"values":{"runs":2}},{"by":{"agent":"b"},"values":{"runs":1}}],"complete":true}`,
		"/v1/threads/t":         `{"threadId":"t","lastRunId":"r"}`,
		"/v1/threads/t/runs/r":  `{"threadId":"t","runId":"r"}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, answers[r.URL.Path]) // a test's answer
	}))
	defer server.Close()
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"history t -o json", answers["/v1/threads/t/history"] + "\n", 0},
		{"history t --json", answers["/v1/threads/t/history"] + "\n", 0},
		{"history t -o jsonl", `{"id":"u1","role":"user","content":"a"}` + "\n" + `{"id":"a1","role":"assistant","content":"b"}` + "\n", 0},
		{"history t -o jsonl --json", "", app.ExitUsage},
		{"history t -o jsonl --follow", "", app.ExitUsage},
		{"history t -o wide", "", app.ExitUsage},
		{"stats --by agent -o json", answers["/v1/statistics"] + "\n", 0},
		{"stats --by agent -o jsonl", `{"by":{"agent":"a"},"values":{"runs":2}}` + "\n" + `{"by":{"agent":"b"},"values":{"runs":1}}` + "\n", 0},
		{"stats --by agent -o table", "a\t2\nb\t1\n", 0},
		{"show t -o json", answers["/v1/threads/t/runs/r"] + "\n", 0},
		{"show t -o text --json", "", app.ExitUsage},
		{"show t -o json --json", answers["/v1/threads/t/runs/r"] + "\n", 0},
		{"show t -o jsonl", "", app.ExitUsage},
		{"threads --json -o name", "", app.ExitUsage},
	} {
		var stdout, stderr bytes.Buffer
		err := run(t.Context(), append(strings.Fields(c.args), "--url", server.URL), nil, strings.NewReader(""), &stdout, &stderr)
		if code := app.ExitCode(err); code != c.code || stdout.String() != c.want {
			t.Errorf("skein %s: exit %d, %v\n%s\nwant exit %d,\n%s", c.args, code, err, stdout.String(), c.code, c.want)
		}
	}
}

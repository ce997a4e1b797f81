package docs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/app/dev/devtest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/test/parts/partstest"
	"github.com/skeinhq/skein/test/process"
)

var nginxBlock = regexp.MustCompile("(?ms)^```nginx\n(.*?)^```$")

// documented are the settings of docs/proxies.md.
func documented(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "proxies.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := nginxBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/proxies.md has %d blocks for nginx, want 1", len(blocks))
	}
	return blocks[0][1]
}

// startNginx runs nginx with settings of a documented form before a server, without TLS, and returns its address.
func startNginx(t *testing.T, settings, upstream string) string {
	t.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/nginx") // of Debian, where it is on root's path only
	}
	if err != nil {
		partstest.Skip(t, "no nginx here: install nginx")
	}
	addr := process.FreeAddress(t)
	for _, change := range []struct{ pattern, by string }{
		{`server 127\.0\.0\.1:842\d;`, "server " + upstream + ";"},
		{`listen 443 ssl;`, "listen " + addr + ";"},
		{`ssl_certificate.*`, ""},
	} {
		pattern := regexp.MustCompile(change.pattern)
		if !pattern.MatchString(settings) {
			t.Fatalf("docs/proxies.md has no %s", change.pattern)
		}
		settings = pattern.ReplaceAllString(settings, change.by)
	}
	dir := t.TempDir()
	var temp strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&temp, "%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	file := filepath.Join(dir, "nginx.conf")
	config := fmt.Sprintf("daemon off;\nmaster_process off;\npid %s/pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n", dir, &temp, settings)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start(t, dir, path, "-p", dir, "-e", "stderr", "-c", file)
	if err != nil {
		t.Fatal(err)
	}
	p.AwaitListening(addr)
	return addr
}

func TestProxies_NginxPassesAllAsItIs(t *testing.T) {
	partstest.SkipShort(t, "nginx")
	server := startSkein(t)
	upstream := strings.TrimPrefix(server.URL(), "http://")
	addr := startNginx(t, documented(t), upstream)
	base := "http://" + addr
	web := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(web.CloseIdleConnections)
	topic := kafka.Config{Brokers: []string{server.Broker()}}
	c := devtest.Client(t, base)

	t.Run("ids", func(t *testing.T) {
		var vectors struct {
			Keys []struct{ Parts []string }
		}
		text, err := os.ReadFile(filepath.Join(root, "schemas", "key-vectors.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &vectors); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		for _, v := range vectors.Keys {
			for _, id := range v.Parts {
				if strings.ContainsRune(id, 0) { // docs/proxies.md says so
					continue
				}
				key, err := record.ThreadKey("dev", id)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := c.PostEvents(t.Context(), id, id, "application/x-ndjson", strings.NewReader(`{"type":"CUSTOM","name":"n","value":1}`)); err != nil {
					t.Errorf("%q: %v", id, err)
				}
				want[key] = id
			}
		}
		if len(want) < 20 {
			t.Errorf("there are %d ids only", len(want))
		}
		got := map[string]string{}
		for _, r := range kafkatest.Consume(t, topic, topic.Topics().Events) {
			h, err := record.ParseHeaders(r.Headers)
			if err != nil {
				t.Fatal(err)
			}
			got[string(r.Key)] = h.RunID
		}
		for key, run := range want {
			if got[key] != run {
				t.Errorf("key %s: run %q, want %q", key, got[key], run)
			}
		}
	})

	t.Run("acknowledgements", func(t *testing.T) { streamsBothWays(t, web, base) })

	t.Run("events", func(t *testing.T) {
		// Two seconds lie between the two events, and the first must not wait for the second.
		if _, err := c.PostEvents(t.Context(), "paced", "r", "application/x-ndjson", strings.NewReader(`{"type":"RUN_STARTED","threadId":"paced","runId":"r"}`)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		ack, err := c.PostEvents(t.Context(), "paced", "r", "application/x-ndjson", strings.NewReader(`{"type":"RUN_FINISHED","threadId":"paced","runId":"r"}`))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("%s/v1/threads/paced/runs/r/events?pace=recorded&atLeast=%d:%d", base, ack.Partition, ack.LastOffset), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "text/event-stream")
		resp, err := web.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		lines, seen := bufio.NewScanner(resp.Body), map[string]time.Time{}
		for lines.Scan() {
			for _, event := range []string{"RUN_STARTED", "RUN_FINISHED"} {
				if strings.Contains(lines.Text(), event) {
					seen[event] = time.Now()
				}
			}
		}
		if len(seen) != 2 || seen["RUN_FINISHED"].Sub(seen["RUN_STARTED"]) < time.Second {
			t.Errorf("%s, %v: the events came at %v, want 2 s between them", resp.Status, lines.Err(), seen)
		}
	})

	t.Run("a large event", func(t *testing.T) {
		large := append(append([]byte(`{"type":"CUSTOM","name":"n","value":"`), bytes.Repeat([]byte("x"), 15<<20)...), `"}`...)
		if _, err := c.PostEvents(t.Context(), "large", "r", "application/x-ndjson", bytes.NewReader(large)); err != nil {
			t.Error(err)
		}
	})
}

// streamsBothWays wants the acknowledgement of each event before the next one is sent.
func streamsBothWays(t *testing.T, web *http.Client, base string) {
	t.Helper()
	body, wr := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/v1/threads/both/runs/r/events", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	// nginx answers once it has the first bytes.
	go func() { _, _ = io.WriteString(wr, `{"type":"CUSTOM","name":"n","value":0}`+"\n") }()
	resp, err := web.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer := json.NewDecoder(resp.Body)
	hear := func() (line struct {
		Acknowledged, Done *struct{ Accepted int64 }
	}) {
		t.Helper()
		if err := answer.Decode(&line); err != nil {
			t.Fatal(err)
		}
		return line
	}
	for n := int64(1); n <= 5; n++ {
		for l := hear(); l.Acknowledged == nil || l.Acknowledged.Accepted < n; l = hear() {
			if l.Acknowledged == nil {
				t.Fatalf("the answer ends before event %d", n)
			}
		}
		if _, err := fmt.Fprintf(wr, `{"type":"CUSTOM","name":"n","value":%d}`+"\n", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := wr.Close(); err != nil {
		t.Fatal(err)
	}
	for l := hear(); l.Done == nil; l = hear() {
	}
}

package ingest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/tenant"
)

// raw sends a request as it stands and returns the answer: a client library would clean its path.
func (d *stage) raw(request string) answer {
	d.t.Helper()
	conn := d.dial()
	if _, err := conn.Write([]byte(request)); err != nil {
		d.t.Fatal(err)
	}
	return d.answerOn(conn)
}

func (d *stage) dial() *net.TCPConn {
	d.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(d.srv.URL, "http://"))
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() }) // some tests have closed it
	if err := conn.SetDeadline(time.Now().Add(kafkatest.Timeout)); err != nil {
		d.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func (d *stage) answerOn(conn net.Conn) answer {
	d.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.read(resp)
}

func TestPath_ABadIDIsA400AndNeverARedirect(t *testing.T) {
	d := newStage(t)
	long := strings.Repeat("x", 513)
	for _, path := range []string{
		"/v1/threads//runs/r/events",
		"/v1/threads/t/runs//events",
		"/v1/threads/./runs/r/events",
		"/v1/threads/../runs/r/events",
		"/v1/threads/t/runs/./events",
		"/v1/threads/t/runs/../events",
		"/v1/threads/%2e/runs/r/events",
		"/v1/threads/%2E%2E/runs/r/events",
		"/v1/threads/t/runs/.%2e/events",
		"/v1/threads/",
		"/v1/threads/..",
		"/v1/threads/" + long,
		"/v1/threads/%FF/runs/r/events",
		"/v1/threads/%ED%A0%80/runs/r/events",
		"/v1/threads/" + long + "/runs/r/events",
		"/v1/threads/t/runs/" + strings.Repeat("%C3%A9", 257) + "/events",
		"/v1/threads/t/runs/" + long + "/input",
	} {
		t.Run(path[:min(len(path), 60)], func(t *testing.T) {
			method := "POST"
			switch {
			case strings.HasSuffix(path, "input"):
				method = "PUT"
			case !strings.Contains(path, "runs"):
				method = "DELETE"
			}
			a := d.in(t, "t").raw(method + " " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
			if a.status != http.StatusBadRequest || a.Reason != "invalid-id" || a.header.Get("Location") != "" {
				t.Errorf("answer is %d %s", a.status, a.body)
			}
		})
	}
}

func TestPath_IDsKeepEveryCharacter(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct{ path, key string }{
		"an escaped slash":           {"a%2Fb", "dev/a%2Fb"},
		"an escaped slash, lower":    {"a%2fb", "dev/a%2Fb"},
		"an escaped percent":         {"a%252Fb", "dev/a%252Fb"},
		"a plus":                     {"a+b", "dev/a%2Bb"},
		"a space":                    {"a%20b", "dev/a%20b"},
		"NUL":                        {"%00", "dev/%00"},
		"a letter that is escaped":   {"%41", "dev/A"},
		"an emoji":                   {"%F0%9F%A7%B6", "dev/%F0%9F%A7%B6"},
		"an emoji that is no escape": {"🧶", "dev/%F0%9F%A7%B6"},
		"three dots":                 {"...", "dev/..."},
		"escaped dots in a name":     {"a%2F..%2Fb", "dev/a%2F..%2Fb"},
		"512 bytes":                  {strings.Repeat("%C3%A9", 256), "dev/" + strings.Repeat("%C3%A9", 256)},
		"a colon and a semicolon":    {"a:b;c", "dev/a%3Ab%3Bc"},
		"a question mark":            {"a%3Fb", "dev/a%3Fb"},
	} {
		t.Run(name, func(t *testing.T) {
			a := d.in(t, "t").raw(fmt.Sprintf("POST /v1/threads/%s/runs/r/events?x=/../ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tc.path, len(ev1), ev1))
			if a.status != http.StatusOK {
				t.Fatalf("answer is %d %s", a.status, a.body)
			}
			var keys []string
			for _, r := range kafkatest.Consume(t, d.cfg, d.cfg.Topics().Events) {
				if r.Partition == a.Partition && r.Offset == a.FirstOffset {
					keys = append(keys, string(r.Key))
				}
			}
			if len(keys) != 1 || keys[0] != tc.key {
				t.Errorf("key is %q, want %q", keys, tc.key)
			}
		})
	}
}

func TestHandler_OtherCallsAreProblems(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct {
		method, path string
		status       int
		allow        string
	}{
		"another path":           {"POST", "/v1/elsewhere", 404, ""},
		"the root":               {"POST", "/", 404, ""},
		"an empty segment":       {"POST", "/v1/threads/t//runs/r/events", 404, ""},
		"two dots":               {"POST", "/v1/threads/a/../b/runs/r/events", 404, ""},
		"an unknown call":        {"POST", "/v1/threads/t/runs/r/history", 404, ""},
		"more path":              {"POST", "/v1/threads/t/runs/r/events/1", 404, ""},
		"events by another verb": {"DELETE", "/v1/threads/t/runs/r/events", 405, "POST"},
		"input by another verb":  {"POST", "/v1/threads/t/runs/r/input", 405, "PUT"},
		"thread by another verb": {"GET", "/v1/threads/t", 405, "DELETE"},
	} {
		t.Run(name, func(t *testing.T) {
			a := d.in(t, "t").do(tc.method, tc.path, strings.NewReader("{}"))
			if a.status != tc.status || a.header.Get("Allow") != tc.allow {
				t.Errorf("answer is %d, Allow %q; want %d, %q", a.status, a.header.Get("Allow"), tc.status, tc.allow)
			}
		})
	}
}

type stranger struct {
	id  tenant.Identity
	err error
}

func (s stranger) Authenticate(*http.Request) (tenant.Identity, error) { return s.id, s.err }

func TestHandler_AsksWhoIsCalling(t *testing.T) {
	d := newStage(t)
	for name, tc := range map[string]struct {
		who    stranger
		status int
		reason string
	}{
		"nobody":                        {stranger{err: fmt.Errorf("no key: %w", tenant.ErrUnauthenticated)}, 401, "unauthenticated"},
		"a reader":                      {stranger{id: tenant.Identity{Tenant: "dev", Scopes: []tenant.Scope{tenant.ScopeRead}}}, 403, "forbidden"},
		"it could not be found out":     {stranger{err: errors.New("the key store is away")}, 503, "unavailable"},
		"a tenant that cannot be a key": {stranger{id: tenant.Identity{Tenant: "..", Scopes: []tenant.Scope{tenant.ScopePublish}}}, 400, "invalid-id"},
	} {
		t.Run(name, func(t *testing.T) {
			d := d.in(t, name)
			d.svc.front.Auth = tc.who
			a := d.post(typeNDJSON, ev1)
			if a.status != tc.status || a.Reason != tc.reason {
				t.Errorf("answer is %d %s, want %d %s", a.status, a.body, tc.status, tc.reason)
			}
			if (a.header.Get("WWW-Authenticate") != "") != (tc.status == 401) || (a.header.Get("Retry-After") != "") != (tc.status == 503) {
				t.Errorf("headers are %v", a.header)
			}
		})
	}
}

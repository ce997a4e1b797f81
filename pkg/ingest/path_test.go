package ingest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/front"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
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

// A new id has no control characters. What has one, from a producer that writes to Kafka itself, can be erased.
func TestPath_RefusesControlCharactersInNewIDs(t *testing.T) {
	d := newStage(t)
	for _, id := range []string{"%00", "a%07b", "a%0A", "%7F", "%C2%85"} {
		for _, path := range []string{
			"/v1/threads/" + id + "/runs/r/events", "/v1/threads/t/runs/" + id + "/events", "/v1/threads/t/runs/" + id + "/input",
		} {
			method := http.MethodPost
			if strings.HasSuffix(path, "/input") {
				method = http.MethodPut
			}
			a := d.do(method, path, strings.NewReader(ev1))
			if a.status != http.StatusBadRequest || a.Reason != front.ReasonID || !strings.Contains(a.Detail, "control character") {
				t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
			}
		}
		if a := d.do(http.MethodDelete, "/v1/threads/"+id, nil); a.status != http.StatusAccepted {
			t.Errorf("erasing %s: %d %s", id, a.status, a.body)
		}
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

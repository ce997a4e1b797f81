package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// script is a server that answers one connection after another, and notes the ids that they come with.
type script struct {
	answers []func(w http.ResponseWriter)
	ids     []string
}

// RoundTrip implements http.RoundTripper: no sockets, so that time is virtual.
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.ids = append(s.ids, r.Header.Get("Last-Event-ID"))
	if len(s.answers) == 0 {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	s.answers[0](w)
	s.answers = s.answers[1:]
	return w.Result(), nil
}

// client returns a client of the script.
func (s *script) client(t *testing.T) *Client {
	t.Helper()
	c, err := New("http://x")
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = s
	return c
}

func says(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, text) } // a recorder takes everything
}

func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

func TestStream_GivesEachEventOnce(t *testing.T) {
	const join = "retry: 1000\nid: join\n\n"
	for name, c := range map[string]struct {
		answers []func(http.ResponseWriter)
		want    []string // position and data
		ids     []string
		err     string
		away    int
		notes   []string
	}{
		"to the end": {
			[]func(http.ResponseWriter){says(join + "data: a\n\ndata: b\nid: 3:1\n\n: \n\nid: 3:2\ndata: : c\n\n"), status(204)},
			[]string{" a", "3:1 b", "3:2 : c"}, []string{"", "3:2"}, "", 0, nil,
		},
		"cut in what belongs together": {
			[]func(http.ResponseWriter){says(join + "data: a\n\ndata: b"), says(join + "data: a\n\ndata: b\nid: 3:1\n\n"),
				says("id: 3:1\n\nid: 3:2\ndata: c\n\nid: 3:3\ndata: d"), says("id: 3:2\n\nid: 3:3\ndata: d\n\n"), status(204)},
			[]string{" a", "3:1 b", "3:2 c", "3:3 d"}, []string{"", "join", "3:1", "3:2", "3:3"}, "", 0, nil,
		},
		"away for a time": {
			[]func(http.ResponseWriter){says("id: 3:1\ndata: a\n\n"), status(503), status(502), says("id: 3:2\ndata: b\n\n"), status(503),
				status(204)},
			[]string{"3:1 a", "3:2 b"}, []string{"", "3:1", "3:1", "3:1", "3:2", "3:2"}, "", 2, nil,
		},
		"refused": {
			[]func(http.ResponseWriter){says("id: 3:1\ndata: a\n\n"), status(410)},
			[]string{"3:1 a"}, []string{"", "3:1"}, "HTTP 410", 0, nil,
		},
		"erased": {
			[]func(http.ResponseWriter){says("id: 3:1\ndata: a\n\ndata: {\"type\":\"RUN_ERROR\",\"message\":\"gone\",\"code\":\"skein-erased\"}\n\n: the thread was erased\n\n")},
			[]string{"3:1 a", ` {"type":"RUN_ERROR","message":"gone","code":"skein-erased"}`}, []string{""}, "", 0, []string{"the thread was erased"},
		},
		"Kafka away": {
			[]func(http.ResponseWriter){says("id: 3:1\ndata: a\n\n: Kafka does not answer\n\n: \n\n:" + strings.Repeat("x", 1000) +
				"\n\nid: 3:2\ndata: b\n\n"), status(204)},
			[]string{"3:1 a", "3:2 b"}, []string{"", "3:2"}, "", 0, []string{"Kafka does not answer", strings.Repeat("x", maxComment)},
		},
		"never there": {nil, nil, []string{""}, "is Skein running there?", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: c.answers}
				var got []string
				var comments []string
				away := 0
				client := s.client(t).Noting(func(text string) {
					if comment, is := strings.CutPrefix(text, "server: "); is {
						comments = append(comments, comment)
					} else {
						away++
					}
				})
				var err error
				for e, failed := range client.Stream(t.Context(), "t", "r") {
					if err = failed; err == nil {
						got = append(got, e.Position+" "+string(e.Data))
					}
				}
				if !slices.Equal(got, c.want) || !slices.Equal(s.ids, c.ids) || away != c.away {
					t.Errorf("it gives %q by %q, away %d; want %q by %q, away %d", got, s.ids, away, c.want, c.ids, c.away)
				}
				if !slices.Equal(comments, c.notes) {
					t.Errorf("the server's comments are %q, want %q", comments, c.notes)
				}
				if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("it ends with %v", err)
				}
			})
		})
	}
}

func TestStream_EndsWithItsCaller(t *testing.T) {
	two := func() *script {
		return &script{answers: []func(http.ResponseWriter){says("id: 3:1\ndata: a\n\nid: 3:2\ndata: b\n\n")}}
	}
	n := 0
	for _, err := range two().client(t).Stream(t.Context(), "t", "") {
		if n++; err != nil {
			t.Error(err)
		}
		break
	}
	if n != 1 {
		t.Errorf("it gives %d events", n)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		n := 0
		for _, err := range two().client(t).Stream(ctx, "t", "") {
			if n++; n == 2 {
				go stop() // while it waits for the next connection
			}
			if n == 3 && !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
		}
		if n != 3 {
			t.Errorf("%d elements, want two events and an error", n)
		}
	})
}

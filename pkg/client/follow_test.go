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

func says(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, text) } // a recorder takes everything
}

func status(code int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { w.WriteHeader(code) }
}

func TestFollow_GivesEachEventOnce(t *testing.T) {
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
				client := &Client{read: "http://x", http: &http.Client{Transport: s}}
				var got []string
				var comments []string
				away := 0
				err := client.Follow(t.Context(), "/v1/threads/t/stream", func(e LiveEvent) error {
					got = append(got, e.Position+" "+string(e.Data))
					return nil
				}, func(text string) {
					if comment, is := strings.CutPrefix(text, "server: "); is {
						comments = append(comments, comment)
					} else {
						away++
					}
				})
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

func TestFollow_EndsWithItsCaller(t *testing.T) {
	enough := errors.New("enough")
	client := &Client{read: "http://x", http: &http.Client{Transport: &script{answers: []func(http.ResponseWriter){says("id: 3:1\ndata: a\n\nid: 3:2\ndata: b\n\n")}}}}
	n := 0
	if err := client.Follow(t.Context(), "/", func(LiveEvent) error { n++; return enough }, nil); !errors.Is(err, enough) || n != 1 {
		t.Errorf("after %d events: %v", n, err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		client := &Client{read: "http://x", http: &http.Client{Transport: &script{answers: []func(http.ResponseWriter){says("id: 3:1\ndata: a\n\n")}}}}
		if err := client.Follow(ctx, "/", func(LiveEvent) error { return nil }, func(string) { stop() }); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}

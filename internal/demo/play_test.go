package demo

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/skeinhq/skein/pkg/client"
)

// An index that never gets there ends the demo with a sentence, and does not hang it.
func TestPlayer_GivesUpOnAnIndexThatIsStuck(t *testing.T) {
	for name, status := range map[string]int{"never gets there": http.StatusTooEarly, "never knows the thread": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.Header().Set("Content-Type", "application/problem+json")
					if r.URL.Query().Get("atLeast") == "" {
						w.WriteHeader(http.StatusNotFound) // before anything was sent
						return
					}
					w.WriteHeader(status)
					return
				}
				_, _ = w.Write([]byte(`{"accepted":1,"partition":3,"firstOffset":7,"lastOffset":7}`)) // a test's answer
			}))
			defer s.Close()
			c, err := client.New(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			p := Player{Client: c, Patience: 200 * time.Millisecond}
			_, err = p.Play(t.Context(), []Conversation{{ThreadID: "t", Runs: []Run{{ID: "r", Input: []byte(`{}`), Events: [][]byte{[]byte(`{}`)}}}}})
			if err == nil || !strings.Contains(err.Error(), "waiting for t") || !strings.Contains(err.Error(), "has not got to 3:7") {
				t.Errorf("got %v", err)
			}
			var refused *client.Error
			if errors.As(err, &refused) {
				t.Errorf("the last answer stands in the place of the reason: %v", err)
			}
		})
	}
}

package kafka

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skeinhq/skein/internal/logtest"
)

// endpoint returns the tokens of a token endpoint.
func endpoint(t *testing.T, answer http.HandlerFunc) *tokens {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	security := Security{SASL: oauthBearer, User: "skein", PasswordFile: secret,
		OAuth: OAuth{URL: s.URL, Scope: "kafka", Extensions: "tier=two,pool=one"}}
	if err := security.validate(); err != nil {
		t.Fatal(err)
	}
	return security.tokens()
}

func answers(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Location", "/login")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// silence answers nothing until the client hangs up, which a server notices once it has the body.
func silence(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestTokens_SayWhatIsWrongWithTheEndpoint(t *testing.T) {
	t.Parallel()
	page := "<html>" + strings.Repeat("<p>Log in, sesame</p>\n", 100_000)
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a page":             {answers(200, "text/html", page), "the answer is not a token in JSON: see that this is the token endpoint"},
		"a page that is not": {answers(404, "text/html", page), "it answers 404 Not Found: see that this is the URL"},
		"another address":    {answers(302, "text/html", page), "it answers 302 Found: see that this is the URL"},
		"no token":           {answers(200, "application/json", `{"token_type":"Bearer"}`), "the answer is not a token"},
		"trouble":            {answers(503, "text/plain", "later"), "it answers 503 Service Unavailable: see what ails it"},
		"another secret": {answers(401, "application/json", `{"error":"invalid_client","error_description":"bad secret"}`),
			`it refuses client "skein" ("invalid_client": "bad secret"): see its id, and its secret in /`},
		"another scope":      {answers(400, "application/json", `{"error":"invalid_scope"}`), `it refuses scope "kafka"`},
		"no such grant":      {answers(400, "application/json", `{"error":"unsupported_grant_type"}`), "allow it that grant there"},
		"a cut answer":       {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"no answer, for 5 s": {silence, "no answer within 5s: see that it is up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tokens := endpoint(t, c.answer)
			_, err := tokens.get(t.Context(), nil)
			if err == nil || !strings.HasPrefix(err.Error(), "asking http://127.0.0.1:") || !strings.Contains(err.Error(), ": "+c.want) ||
				strings.ContainsAny(err.Error(), "<\n") || strings.Contains(err.Error(), "sesame") {
				t.Errorf("it says %v", err)
			}
			if !errors.Is(tokens.lastTrouble(), err) {
				t.Errorf("readiness says %v", tokens.lastTrouble())
			}
		})
	}
}

// However many clients connect, the endpoint is asked once. An endpoint that is away is not noticed while the token is valid.
func TestTokens_AreSharedAndOutliveTheirEndpoint(t *testing.T) {
	t.Parallel()
	var asked, away atomic.Int32
	tokens := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch away.Load() {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case 2:
			silence(w, r)
			return
		}
		answers(200, "application/json", `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)(w, r)
	})
	get := func() error {
		token, err := tokens.of.tokens().get(t.Context(), nil)
		if err == nil && token != "t" {
			t.Errorf("token %q", token)
		}
		return err
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := get(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if asked.Load() != 1 {
		t.Errorf("the endpoint was asked %d times", asked.Load())
	}
	age := func(by time.Duration) {
		tokens.mu.Lock()
		defer tokens.mu.Unlock()
		tokens.renew, tokens.expire = tokens.renew.Add(-by), tokens.expire.Add(-by)
		if tokens.failed != nil {
			tokens.failed.at = tokens.failed.at.Add(-by)
		}
	}
	away.Store(1)
	age(50 * time.Minute) // a new one is due after 48
	for range 5 {         // the endpoint is left alone after an error
		if err := get(); err != nil || asked.Load() != 2 || tokens.lastTrouble() != nil {
			t.Errorf("asked %d times: %v; readiness says %v", asked.Load(), err, tokens.lastTrouble())
		}
	}
	age(10 * time.Minute)
	for range 5 {
		if err := get(); err == nil || asked.Load() != 3 || tokens.lastTrouble() == nil {
			t.Errorf("asked %d times: the token served beyond its end: %v", asked.Load(), err)
		}
	}
	age(10 * time.Second) // meanwhile nobody has asked for a token
	if err := tokens.lastTrouble(); err != nil {
		t.Errorf("readiness says %v", err)
	}
	away.Store(0)
	if err := get(); err != nil || tokens.lastTrouble() != nil {
		t.Errorf("with the endpoint back: %v, %v", err, tokens.lastTrouble())
	}
	away.Store(2)
	age(50 * time.Minute)
	if began := time.Now(); get() != nil || time.Since(began) > tokenTimeout/2 {
		t.Errorf("a slow endpoint held a connection for %v", time.Since(began))
	}
}

// A token that is used is renewed before it expires, also if the endpoint is away at first.
func TestTokens_AreRenewedWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	var asked, away atomic.Int32
	tokens := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); away.Load() > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answers(200, "application/json", `{"access_token":"t","token_type":"Bearer","expires_in":3}`)(w, r)
	})
	var log logtest.Log
	get := func() {
		t.Helper()
		if _, err := tokens.get(t.Context(), slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
	}
	until := func(want int32) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); asked.Load() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("asked %d times, want %d", asked.Load(), want)
			}
		}
	}
	get()
	away.Store(1)
	tokens.renewal()
	away.Store(0)
	if asked.Load() != 2 || !strings.Contains(log.String(), "is not renewed") || !strings.Contains(log.String(), "503") {
		t.Errorf("asked %d times, and the log says %q", asked.Load(), log.String())
	}
	until(3)
	get()
	until(4)
	if time.Sleep(3 * time.Second); asked.Load() != 4 {
		t.Errorf("asked %d times, although nothing has used the last token", asked.Load())
	}
}

// A token that brokers have refused is not shown to them again.
func TestTokens_AskAnewAfterARefusal(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	tokens := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		answers(200, "application/json", `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)(w, r)
	})
	for want := range int32(2) {
		s, first, err := bearer{tokens: tokens}.Authenticate(t.Context(), "kafka:9092")
		if err != nil || string(first) != "n,,\x01auth=Bearer t\x01pool=one\x01tier=two\x01\x01" || asked.Load() != want+1 {
			t.Fatalf("asked %d times: %q, %v", asked.Load(), first, err)
		}
		_, _, err = s.Challenge([]byte(`{"status":"invalid_token","scope":"kafka.write"}`))
		if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), `"invalid_token, they want scope kafka.write"`) {
			t.Errorf("it says %v", err)
		}
		if _, _, again := (bearer{tokens: tokens}).Authenticate(t.Context(), "kafka:9092"); !errors.Is(again, err) || asked.Load() != want+1 {
			t.Errorf("at once, it asks %d times, and says %v", asked.Load(), again)
		}
		tokens.failed.at = tokens.failed.at.Add(-tokenPause)
	}
}

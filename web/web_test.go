package web_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/skeinhq/skein/web"
)

func get(path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	web.Handler(nil, "").ServeHTTP(w, r)
	return w
}

func TestHandler_ServesThePageAndWhatItLoads(t *testing.T) {
	index := get(web.Index)
	if index.Code != http.StatusOK || index.Header().Get("Cache-Control") != "no-cache" ||
		index.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("index: %d %v", index.Code, index.Header())
	}
	policy := index.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") ||
		strings.Contains(policy, "*") {
		t.Errorf("the policy is %q", policy)
	}
	if again := get(web.Index, "If-None-Match", index.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("the index again: %d", again.Code)
	}
	assets := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(index.Body.String(), -1)
	if len(assets) < 3 {
		t.Fatalf("the index loads %q", assets)
	}
	for _, m := range assets {
		if !strings.HasPrefix(m[1], web.AssetPrefix) {
			t.Errorf("the index loads %s", m[1])
		}
		a := get(m[1])
		if a.Code != http.StatusOK || !strings.Contains(a.Header().Get("Cache-Control"), "immutable") || a.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", m[1], a.Code, a.Header())
		}
	}
	if strings.Contains(index.Body.String(), "style=") || regexp.MustCompile(`<script[^>]*>[^<]`).Match(index.Body.Bytes()) {
		t.Error("the index has inline scripts or styles, which its policy refuses")
	}
	for _, path := range []string{"/assets/nothing.js", "/index.html", "/assets/"} {
		if w := get(path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// The whole page is under 400 KB as it goes over the wire.
func TestDist_IsSmall(t *testing.T) {
	total := 0
	err := fs.WalkDir(os.DirFS("dist"), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile("dist/" + path)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(body); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		total += b.Len()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes in gzip", total)
	if total > 400<<10 {
		t.Errorf("the page has %d bytes in gzip, want at most %d", total, 400<<10)
	}
}

// The lock file names no registry: npm takes the one that is configured where it runs.
func TestLockFile_NamesNoRegistry(t *testing.T) {
	text, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Resolved, Integrity string }
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		t.Fatal(err)
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" || name != "" && p.Integrity == "" {
			t.Errorf("%s: resolved %q, integrity %q", name, p.Resolved, p.Integrity)
		}
	}
}

func TestParseLinks_TakesHTTPSWithAFixedHost(t *testing.T) {
	links, err := web.ParseLinks([]string{"traces=https://traces.example/t/{trace}/{label.trace-id}?run={run}",
		" user =https://crm.example/{label.user}#{thread}"})
	if err != nil || len(links) != 2 || links[1].Name != "user" ||
		links[0].URL != "https://traces.example/t/{trace}/{label.trace-id}?run={run}" {
		t.Errorf("got %v, %v", links, err)
	}
	for _, bad := range []string{
		"", "x", "x=", "=https://a.example/", "x=http://a.example/", "x=javascript:alert(1)", "x=https:///{run}", "x=https://{label.host}/",
		"x=https://a.example:{run}/",
		"x=https://a.example/{user}", "x=https://a.example/{label.}", "x=https://u:p@a.example/", "x=HTTPS:{run}",
	} {
		if links, err := web.ParseLinks([]string{bad}); err == nil {
			t.Errorf("%q gives %v", bad, links)
		} else if !strings.Contains(err.Error(), "NAME=URL") {
			t.Errorf("%q: %v does not say what to write", bad, err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, web.LinksPath, nil)
	w := httptest.NewRecorder()
	web.Handler(links, "https://in.example:8443/api").ServeHTTP(w, r)
	var got []web.Link
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got) != 2 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s gives %s, %v", web.LinksPath, w.Body, err)
	}
	if policy := w.Header().Get("Content-Security-Policy"); !strings.HasSuffix(policy, "; connect-src 'self' https://in.example:8443") {
		t.Errorf("with another address of ingest, the policy is %q", policy)
	}
	if got := get(web.LinksPath).Body.String(); got != "[]" {
		t.Errorf("without links it is %s", got)
	}
}

// What is served is compressed once, for callers that take it.
func TestStatic_IsCompressedForWhoTakesIt(t *testing.T) {
	s := web.NewStatic([]byte(strings.Repeat("text ", 1000)), "text/plain", "no-cache")
	for takes, want := range map[string]string{"": "", "gzip": "gzip", "br, gzip;q=0.5": "gzip", "gzip;q=0": "", "zstd, x-gzip": ""} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", takes)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		body := io.Reader(w.Body)
		if w.Header().Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(w.Body); err != nil {
				t.Fatal(err)
			}
		}
		text, err := io.ReadAll(body)
		if err != nil || w.Header().Get("Content-Encoding") != want || w.Header().Get("Vary") != "Accept-Encoding" ||
			string(text) != strings.Repeat("text ", 1000) {
			t.Errorf("%q is answered %v %.20q (%v)", takes, w.Header(), text, err)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	web.NewStatic([]byte("x"), "text/plain", "no-cache").ServeHTTP(w, r)
	if w.Body.String() != "x" || w.Header().Get("Content-Encoding") != "" {
		t.Errorf("a byte is answered %v %q", w.Header(), w.Body)
	}
}

package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCORS_AllowsThePageAtAnAddress(t *testing.T) {
	for address, want := range map[string]string{
		"": "", "https://Skein.example:443/": "https://skein.example", "http://127.0.0.1:8422": "http://127.0.0.1:8422",
		"http://skein.example:80/behind/": "http://skein.example",
	} {
		var c CORS
		if c.AllowPage(address); strings.Join(c.Origins, " ") != want || c.Check() != nil {
			t.Errorf("at %q it allows %q, %v", address, c.Origins, c.Check())
		}
	}
	c := CORS{Origins: []string{anyOrigin}}
	if c.AllowPage("https://skein.example"); len(c.Origins) != 1 {
		t.Errorf("beside every page it allows %q", c.Origins)
	}
}

func TestCORS_LetsThePagesInThatItIsTold(t *testing.T) {
	const page, other = "https://app.example", "https://other.example"
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
	for name, c := range map[string]struct {
		cors           CORS
		method, origin string
		ask            string
		status         int
		allowed, vary  string
		headers        string // some of those that a preflight allows
	}{
		"none are told":                   {CORS{}, "POST", page, "", 200, "", "", ""},
		"a preflight, none are told":      {CORS{}, "OPTIONS", page, "POST", 405, "", "", ""},
		"the page":                        {CORS{Origins: []string{page}}, "POST", page, "", 200, page, "Origin", ""},
		"the page reads":                  {CORS{Origins: []string{other, page}}, "GET", page, "", 200, page, "Origin", ""},
		"another page":                    {CORS{Origins: []string{page}}, "POST", other, "", 200, "", "Origin", ""},
		"a page whose name begins so":     {CORS{Origins: []string{page}}, "POST", page + ".evil", "", 200, "", "Origin", ""},
		"no page":                         {CORS{Origins: []string{page}}, "POST", "", "", 200, "", "Origin", ""},
		"every page":                      {CORS{Origins: []string{"*"}}, "POST", other, "", 200, "*", "", ""},
		"a preflight":                     {CORS{Origins: []string{page}, Headers: []string{"x-request-id"}}, "OPTIONS", page, "POST", 204, page, "Origin", "Authorization, Skein-Authorization, Content-Type, Last-Event-Id, X-Request-Id, skein-label-user"},
		"a preflight of another page":     {CORS{Origins: []string{page}}, "OPTIONS", other, "POST", 405, "", "Origin", ""},
		"a preflight of every page":       {CORS{Origins: []string{"*"}}, "OPTIONS", other, "PUT", 204, "*", "", "Authorization"},
		"OPTIONS that asks for no method": {CORS{Origins: []string{page}}, "OPTIONS", page, "", 405, page, "Origin", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), c.method, "http://127.0.0.1/v1/agents/a", nil)
			if c.origin != "" {
				r.Header.Set("Origin", c.origin)
			}
			if c.ask != "" {
				r.Header.Set("Access-Control-Request-Method", c.ask)
				r.Header.Set("Access-Control-Request-Headers", "authorization,skein-label-user,x-other")
			}
			w := httptest.NewRecorder()
			c.cors.Handler(inner).ServeHTTP(w, r)
			h := w.Header()
			if w.Code != c.status || h.Get("Access-Control-Allow-Origin") != c.allowed || h.Get("Vary") != c.vary ||
				h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("answer is %d with %v", w.Code, h)
			}
			allowed := ", " + h.Get("Access-Control-Allow-Headers") + ","
			for name := range strings.SplitSeq(c.headers, ", ") {
				if !strings.Contains(allowed, " "+name+",") {
					t.Errorf("%s is not among%s", name, allowed)
				}
			}
			if strings.Contains(strings.ToLower(allowed), "x-other") {
				t.Errorf("allowed are%s", allowed)
			}
		})
	}
}

func TestCORS_SaysHowAnOriginIsWritten(t *testing.T) {
	for _, origin := range []string{"https://app.example", "http://localhost:3000", "*"} {
		if err := (CORS{Origins: []string{origin}}).Check(); err != nil {
			t.Errorf("%s: %v", origin, err)
		}
	}
	for _, origin := range []string{"", "null", "app.example", "https://app.example/", "https://app.example/x", "ftp://x", "https://u@x",
		"HTTPS://APP.example", "https://"} {
		if err := (CORS{Origins: []string{origin}}).Check(); err == nil || !strings.Contains(err.Error(), "such as https://app.example") {
			t.Errorf("%q gives %v", origin, err)
		}
	}
	if err := (CORS{Origins: []string{"*", "https://app.example"}}).Check(); err == nil {
		t.Error("* beside others is fine")
	}
}

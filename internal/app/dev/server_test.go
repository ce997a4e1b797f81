package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/skeinhq/skein/internal/recordings"
	"github.com/skeinhq/skein/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// config is a server on free ports.
func config(data string) Config {
	cfg := DefaultConfig()
	cfg.Data, cfg.Listen, cfg.KafkaListen = data, "127.0.0.1:0", "127.0.0.1:0"
	return cfg
}

// serve runs f with a server and closes it.
func serve(t *testing.T, cfg Config, f func(s *Server, c *client.Client)) {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	f(s, c)
	c.Close()
	if err := s.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
}

// play sends a recorded thread.
func play(t *testing.T, c *client.Client, thread recordings.Thread) {
	t.Helper()
	for _, r := range thread.Runs {
		if _, err := c.PutInput(t.Context(), thread.ThreadID, r.RunID, r.Input); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PostEvents(t.Context(), thread.ThreadID, r.RunID, client.TypeSSE, bytes.NewReader(r.SSE())); err != nil {
			t.Fatal(err)
		}
	}
}

// poll calls f until it returns "" or a long time is over; what it returns says what is missing.
func poll(t *testing.T, f func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		missing := f()
		if missing == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(missing)
		}
	}
}

// histories returns the history of every run of a thread once it has ended.
func histories(t *testing.T, c *client.Client, thread recordings.Thread) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, r := range thread.Runs {
		poll(t, func() string {
			body, err := c.Get(t.Context(), client.RunPath(thread.ThreadID, r.RunID)+"/history", nil)
			if err != nil {
				return err.Error()
			}
			var h struct {
				Status          string
				Messages, State json.RawMessage
			}
			if err := json.Unmarshal(body, &h); err != nil {
				return err.Error()
			}
			if h.Status == "running" {
				return "run " + r.RunID + " is still running"
			}
			out[r.RunID] = string(h.Messages) + string(h.State)
			return ""
		})
	}
	return out
}

// A restart keeps everything. Whatever is lost of derived data, by a deleted folder or by a process that did not end cleanly,
// is made again from the broker's topics, and the log says so once.
func TestServer_DerivedDataIsMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		harm    func(t *testing.T, data string)
		unclean bool
	}{
		"nothing lost":            {func(*testing.T, string) {}, false},
		"index deleted":           {func(t *testing.T, data string) { remove(t, data, indexName) }, false},
		"local stores deleted":    {func(t *testing.T, data string) { remove(t, data, compactorName) }, false},
		"not ended cleanly":       {mark, true},
		"index of another folder": {func(t *testing.T, data string) { mark(t, data); scribble(t, data) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t.TempDir())
			thread, ok := recordings.Find("ag-ui-langgraph", "text-multiturn")
			if !ok {
				t.Fatal("the recording is gone")
			}
			var log bytes.Buffer
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			var before, after map[string]string
			serve(t, cfg, func(_ *Server, c *client.Client) {
				play(t, c, thread)
				before = histories(t, c, thread)
			})
			log.Reset()
			c.harm(t, cfg.Data)
			serve(t, cfg, func(_ *Server, c *client.Client) { after = histories(t, c, thread) })
			if len(before) == 0 || !maps.Equal(before, after) {
				t.Errorf("the histories were\n%v\nand are\n%v", before, after)
			}
			if said := strings.Contains(log.String(), "derived data is made again"); said != c.unclean {
				t.Errorf("the log: %s", log.String())
			}
		})
	}
}

func remove(t *testing.T, data, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(data, name)); err != nil {
		t.Fatal(err)
	}
}

func mark(t *testing.T, data string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(data, markerName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// scribble makes the index unreadable, as a power cut may.
func scribble(t *testing.T, data string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(data, indexName, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no index: %v", err)
	}
	for _, f := range files {
		if err := os.WriteFile(f, []byte("this is no database, whatever its name says"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServer_OneProcessAFolder(t *testing.T) {
	cfg := config(t.TempDir())
	serve(t, cfg, func(*Server, *client.Client) {
		_, err := Start(t.Context(), cfg)
		if !errors.Is(err, ErrFolderInUse) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
	})
	serve(t, cfg, func(*Server, *client.Client) {}) // free again
}

// A start that fails leaves nothing: no lock, no marker, no goroutine. A port in use is one line, with the flag and the variable that
// choose another.
func TestServer_AFailedStartLeavesNothing(t *testing.T) {
	data := t.TempDir()
	serve(t, config(t.TempDir()), func(other *Server, _ *client.Client) {
		for flag, set := range map[string]func(*Config){
			"listen":       func(c *Config) { c.Listen = strings.TrimPrefix(other.URL(), "http://") },
			"kafka-listen": func(c *Config) { c.KafkaListen = other.Broker() },
			"admin-listen": func(c *Config) { c.AdminListen = other.Broker() },
		} {
			cfg := config(data)
			set(&cfg)
			_, err := Start(t.Context(), cfg)
			for _, want := range []string{
				"address already in use", "--" + flag + " 127.0.0.1:0", "SKEIN_LISTEN=", "SKEIN_KAFKA_LISTEN=", "SKEIN_DATA=",
			} {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: got %v, want %q", flag, err, want)
				}
			}
			if _, err := os.Stat(filepath.Join(data, markerName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the marker is left: %v", err)
			}
		}
	})
	serve(t, config(data), func(*Server, *client.Client) {})
}

func TestServer_AdministrationListensApart(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.AdminListen = "127.0.0.1:0"
	serve(t, cfg, func(s *Server, c *client.Client) {
		for path, want := range map[string]string{
			"/healthz": `"ok"`,
			"/readyz":  `"compactor":"ok"`,
			"/metrics": "skein_compactor_",
		} {
			resp, err := http.Get(s.AdminURL() + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
				t.Errorf("%s: %d %.300s", path, resp.StatusCode, body)
			}
		}
		var refused *client.Error
		if _, err := c.Get(t.Context(), "/metrics", nil); !errors.As(err, &refused) || !refused.NoRoute {
			t.Errorf("the API serves metrics: %v", err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
}

// Any web page that is open on this machine can send requests to the server.
func TestServer_KeepsWebPagesOut(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.AdminListen = "127.0.0.1:0"
	serve(t, cfg, func(s *Server, _ *client.Client) {
		for name, c := range map[string]struct {
			method, url, host, origin string
			want                      int
		}{
			"rebound name":                   {http.MethodGet, s.URL() + "/v1/threads", "rebound.example", "", http.StatusForbidden},
			"rebound name at administration": {http.MethodGet, s.AdminURL() + "/metrics", "rebound.example", "", http.StatusForbidden},
			"write of another origin": {http.MethodPost, s.URL() + "/v1/threads/t/runs/r/events", "", "https://page.example",
				http.StatusForbidden},
			"localhost": {http.MethodGet, s.URL() + "/v1/threads", "localhost", "", http.StatusOK},
		} {
			req, err := http.NewRequestWithContext(t.Context(), c.method, c.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.host != "" {
				req.Host = c.host
			}
			if c.origin != "" {
				req.Header.Set("Origin", c.origin)
			}
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.want {
				t.Errorf("%s: %d %.200s", name, resp.StatusCode, body)
			}
		}
	})
}

func TestConfig_Validate(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no folder":             func(c *Config) { c.Data = "" },
		"no partitions":         func(c *Config) { c.Partitions = 0 },
		"all addresses":         func(c *Config) { c.KafkaListen = ":8492" },
		"name to listen on":     func(c *Config) { c.Listen = "skein.example:8420" },
		"address of the net":    func(c *Config) { c.KafkaListen = "10.0.0.1:1" },
		"name that may resolve": func(c *Config) { c.AdminListen = "skein.example:1" },
	} {
		c := DefaultConfig()
		change(&c)
		if c.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	pages := DefaultConfig()
	if pages.CORS.Origins = []string{"*"}; pages.Validate() == nil {
		t.Error("any web page may read without a key")
	}
	if pages.Listen = "0.0.0.0:8420"; pages.Validate() != nil {
		t.Errorf("web pages with a key are kept out: %v", pages.Validate())
	}
}

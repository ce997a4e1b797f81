package stores

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

func open(t *testing.T, args ...string) (Store, error) {
	t.Helper()
	var c Choice
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.Flags(f)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	s, err := c.Open(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil {
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return s, err
}

func TestChoice_OpensTheStoreThatIsNamed(t *testing.T) {
	s, err := open(t, "--sqlite", filepath.Join(t.TempDir(), "lineage.sqlite"))
	if _, ok := s.(*sqlite.Store); !ok {
		t.Errorf("--sqlite gives %T, %v", s, err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Nobody listens there: a stage starts all the same.
	s, err = open(t, "--clickhouse", "http://127.0.0.1:1", "--clickhouse-password-file", password)
	if _, ok := s.(*clickhouse.Store); !ok {
		t.Errorf("--clickhouse gives %T, %v", s, err)
	}
}

func TestChoice_OneClearLineForWhatCannotWork(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"none":             {nil, app.ExitUsage, "pass --clickhouse URL"},
		"both":             {[]string{"--clickhouse", "http://a:1", "--sqlite", "x"}, app.ExitUsage, "either --clickhouse or --sqlite"},
		"no such protocol": {[]string{"--clickhouse", "ftp://a:1"}, app.ExitUsage, "ftp"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := open(t, c.args...)
			if err == nil || app.ExitCode(err) != c.code || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("code %d, %v; want code %d and one line with %q", app.ExitCode(err), err, c.code, c.want)
			}
		})
	}
}

// ClickHouse behind TLS is reached where its authority is named, and not where it is not.
func TestChoice_TakesAnAuthorityOfOnesOwn(t *testing.T) {
	asked := make(chan struct{}, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := open(t, "--clickhouse", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil || len(asked) > 0 {
		t.Errorf("a server that nobody vouches for is asked: %v", err)
	}
	if s, err = open(t, "--clickhouse", server.URL, "--clickhouse-ca-file", ca); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err == nil || len(asked) == 0 {
		t.Errorf("the server is not asked: %v", err)
	}
	for name, args := range map[string][]string{
		"no file":      {"--clickhouse", server.URL, "--clickhouse-ca-file", ca + ".none"},
		"in the clear": {"--clickhouse", "http://127.0.0.1:1", "--clickhouse-ca-file", ca},
	} {
		if _, err := open(t, args...); app.ExitCode(err) != app.ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

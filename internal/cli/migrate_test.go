package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/clickhousetest"
)

// The schema is brought up, again without effect, and on a real ClickHouse by a user with a password.
func TestMigrate_BringsUpTheSchema(t *testing.T) {
	migrated := func(t *testing.T, store ...string) {
		t.Helper()
		for range 2 {
			stdout, stderr, code := skein(t, "", append([]string{"migrate"}, store...)...)
			if code != app.ExitDone || stdout != "the schema is up to date\n" || stderr != "" {
				t.Fatalf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "lineage.sqlite")
		defer syscall.Umask(syscall.Umask(0)) // as open as can be
		migrated(t, "--sqlite", file)
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the file is %v, %v; want it for its owner only", info.Mode(), err)
		}
	})
	t.Run("real ClickHouse", func(t *testing.T) {
		s := clickhousetest.Start(t)
		store := []string{"--clickhouse", s.Addr, "--clickhouse-database", s.Database, "--clickhouse-user", s.Username}
		if s.Password != "" { // an empty file is refused
			store = append(store, "--clickhouse-password-file", writeFile(t, "password", s.Password+"\n"))
		}
		migrated(t, store...)
	})
	t.Run("nobody answers", func(t *testing.T) {
		stdout, stderr, code := skein(t, "", "migrate", "--clickhouse", "http://127.0.0.1:1")
		if code != app.ExitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "127.0.0.1:1") {
			t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
		}
	})
}

package clickhouse

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	chproto "github.com/ClickHouse/ch-go/proto"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/store"
)

// A wrong password is told as such, and the same Store comes in once its file is mended: when it starts,
// and when the password changes while it has connections.
func TestStore_GoesOnOnceItsPasswordIsMended(t *testing.T) {
	g := clickhousetest.StartGuarded(t)
	file := filepath.Join(t.TempDir(), "password")
	s := connect(t, Options{Addrs: []string{g.Addr}, Database: g.Database, Username: g.Username, PasswordFile: file})
	refused := func(want error) {
		t.Helper()
		err := s.Ping(t.Context())
		if !errors.Is(err, want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "guess") {
			t.Errorf("%v, want %v on one line", err, want)
		}
	}
	put := func(password string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused(fs.ErrNotExist)
	put("\n")
	refused(ErrPassword)
	put("guess")
	refused(ErrDenied)
	put(g.Password + "\n")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Several connections, so that all of them have to notice.
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	g.SetPassword("second")
	put("second")
	if err := s.Write(t.Context(), []store.Entry{sealedEntry(1)}); err != nil {
		t.Errorf("after the password was changed: %v", err)
	}
	if r, err := s.Run(t.Context(), "t", "th", "r"); err != nil || r.Version != 1 {
		t.Errorf("version %d, %v; want 1", r.Version, err)
	}
}

// The native protocol has no real server here: this one says hello as a server does, refuses everybody
// and tells which passwords came.
func TestStore_LogsInAnewOnEachNativeConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	passwords := make(chan string)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(passwords)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			passwords <- refuse(t, conn)
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	file := filepath.Join(t.TempDir(), "password")
	s := connect(t, Options{Addrs: []string{"clickhouse://" + l.Addr().String()}, Username: "u", PasswordFile: file})
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		pinged := make(chan error, 1)
		go func() { pinged <- s.Ping(t.Context()) }()
		if got := <-passwords; got != want {
			t.Errorf("the password is %q, want %q", got, want)
		}
		if err := <-pinged; !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrDenied without the password", err)
		}
	}
}

// refuse reads a client's hello, answers that its password is wrong, and returns the password.
func refuse(t *testing.T, conn net.Conn) string {
	t.Helper()
	defer func() { _ = conn.Close() }() // the client has closed it by then
	r := chproto.NewReader(conn)
	var hello chproto.ClientHello
	if code, err := r.UVarInt(); err != nil || chproto.ClientCode(code) != chproto.ClientCodeHello {
		t.Errorf("the client says %d, %v, want hello", code, err)
	}
	if err := hello.Decode(r); err != nil {
		t.Error(err)
	}
	var b chproto.Buffer
	b.PutUVarInt(uint64(chproto.ServerCodeException))
	(&chproto.Exception{Code: 516, Name: "DB::Exception", Message: "u: Authentication failed"}).EncodeAware(&b, 0)
	if _, err := conn.Write(b.Buf); err != nil {
		t.Error(err)
	}
	return hello.Password
}

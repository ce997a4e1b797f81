package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
)

// authority signs certificates for 127.0.0.1.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	cert, key, err := kafkatest.Certificate(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// write signs a certificate and writes it with its key.
func (a *authority) write(name, certFile, keyFile string) tls.Certificate {
	a.t.Helper()
	cert, key, err := kafkatest.Certificate(name, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	writePEM(a.t, certFile, "CERTIFICATE", cert.Raw)
	writePEM(a.t, keyFile, "EC PRIVATE KEY", der)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// secured is a server behind a listener with TLS.
type secured struct {
	t     *testing.T
	addr  string
	check func(context.Context) error
}

func startSecured(t *testing.T, args ...string) *secured {
	t.Helper()
	var set ListenerTLS
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	set.Flags(f, "tls", "the test")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := set.Check(); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", "listen")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l, check, err := set.Listen(l, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- ServeHTTP(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, r.Proto, " ",
				r.TLS != nil)
		}), slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &secured{t: t, addr: addr, check: check}
}

// get returns the common name of the server's certificate.
func (s *secured) get(roots *x509.CertPool, own ...tls.Certificate) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: own}}}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+s.addr, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "HTTP/2.0 true" {
		s.t.Errorf("the answer is %q, %v", body, err)
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName, nil
}

// eventually asks until the answer is as wanted: files are read again after a moment.
func (s *secured) eventually(what string, is func() bool) {
	s.t.Helper()
	deadline := time.After(30 * time.Second)
	for !is() {
		select {
		case <-deadline:
			s.t.Fatalf("waited for this: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestListenerTLS_ReadsItsCertificateAgain(t *testing.T) {
	ca, dir := newAuthority(t, "ca"), t.TempDir()
	cert, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.write("first", cert, key)
	s := startSecured(t, "--tls-cert-file", cert, "--tls-key-file", key)
	if name, err := s.get(ca.pool()); err != nil || name != "first" {
		t.Fatalf("%q, %v", name, err)
	}
	if resp, err := http.Get("http://" + s.addr); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("a request in the clear is answered with %d", resp.StatusCode)
		}
	}
	ca.write("second", cert, key)
	s.eventually("the second certificate", func() bool {
		name, err := s.get(ca.pool())
		return err == nil && name == "second"
	})
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.eventually("readiness says that the key is broken", func() bool {
		err := s.check(t.Context())
		return err != nil && strings.Contains(err.Error(), key)
	})
	if name, err := s.get(ca.pool()); err != nil || name != "second" {
		t.Errorf("with a broken key: %q, %v", name, err)
	}
	ca.write("third", cert, key)
	s.eventually("the third certificate", func() bool {
		name, err := s.get(ca.pool())
		return err == nil && name == "third" && s.check(t.Context()) == nil
	})
}

func TestListenerTLS_AsksClientsForACertificate(t *testing.T) {
	ca, clients, others, dir := newAuthority(t, "ca"), newAuthority(t, "clients"), newAuthority(t, "others"), t.TempDir()
	cert, key, clientCA := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), filepath.Join(dir, "clients.crt")
	ca.write("server", cert, key)
	writePEM(t, clientCA, "CERTIFICATE", clients.cert.Raw)
	s := startSecured(t, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-client-ca-file", clientCA)
	own := clients.write("client", filepath.Join(dir, "c.crt"), filepath.Join(dir, "c.key"))
	other := others.write("client", filepath.Join(dir, "o.crt"), filepath.Join(dir, "o.key"))
	if _, err := s.get(ca.pool(), own); err != nil {
		t.Error(err)
	}
	for name, certs := range map[string][]tls.Certificate{"none": nil, "another authority's": {other}} {
		if _, err := s.get(ca.pool(), certs...); err == nil {
			t.Errorf("%s: it is let in", name)
		}
	}
	writePEM(t, clientCA, "CERTIFICATE", others.cert.Raw)
	s.eventually("the other authority is in force, and the first one is not", func() bool {
		_, old := s.get(ca.pool(), own)
		_, err := s.get(ca.pool(), other)
		return old != nil && err == nil
	})
}

func TestListenerTLS_RefusesHalfOfIt(t *testing.T) {
	for _, set := range []ListenerTLS{{prefix: "tls", cert: "c"}, {prefix: "tls", key: "k"}, {prefix: "tls", clientsOwn: "a"}} {
		if err := set.Check(); err == nil {
			t.Errorf("%+v passes", set)
		}
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", "listen")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	none := ListenerTLS{cert: filepath.Join(t.TempDir(), "none"), key: "none"}
	if _, _, err := none.Listen(l, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it starts without its certificate")
	}
}

package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/reload"
)

// certificatePoll is the maximum age of a listener's loaded files. A connection that finds older ones reads the files again.
const certificatePoll = 2 * time.Second

// ReadCAs returns the CAs of a PEM file.
func ReadCAs(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}

// ListenerTLS has the files of a listener's TLS settings. Without files the listener has no TLS.
type ListenerTLS struct {
	prefix                string // of the flags
	cert, key, clientsOwn string
}

// Flags adds the flags, each with the prefix; what names the listener.
func (t *ListenerTLS) Flags(f *pflag.FlagSet, prefix, what string) {
	t.prefix = prefix
	f.StringVar(&t.cert, prefix+"-cert-file", "", "PEM `FILE` with the certificate of "+what+", which then serves TLS only; reloaded when it changes")
	f.StringVar(&t.key, prefix+"-key-file", "", "PEM `FILE` with the certificate's private key")
	f.StringVar(&t.clientsOwn, prefix+"-client-ca-file", "", "PEM `FILE` of the CAs that must have signed client certificates (mTLS); by default no client certificate is required")
}

// Check returns the first error in the settings.
func (t *ListenerTLS) Check() error {
	if (t.cert == "") != (t.key == "") {
		return Usagef("--%[1]s-cert-file and --%[1]s-key-file must be set together", t.prefix)
	}
	if t.clientsOwn != "" && t.cert == "" {
		return Usagef("--%[1]s-client-ca-file needs --%[1]s-cert-file: without TLS, clients present no certificate", t.prefix)
	}
	return nil
}

// Listen returns the listener with TLS, if TLS is set, and a check that fails while the files cannot be used. The listener then
// keeps the files of the last successful read. A first read that fails is an error.
func (t *ListenerTLS) Listen(l net.Listener, logger *slog.Logger) (net.Listener, func(context.Context) error, error) {
	if t.cert == "" {
		return l, nil, nil
	}
	files := &listenerFiles{ListenerTLS: t, logger: logger}
	files.source = reload.Source{Read: files.read, Take: files.take}
	if err := files.source.Load(context.Background(), time.Now()); err != nil {
		return nil, nil, err
	}
	files.source.Refused = func(err error) {
		logger.Error("a certificate was not read; the one read before stays in force", "error", err)
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: files.config}), files.check, nil
}

// listenerFiles holds the listener's TLS configuration from the last successful read of its files.
type listenerFiles struct {
	*ListenerTLS
	logger *slog.Logger
	source reload.Source
	now    atomic.Pointer[tls.Config]
}

// config returns the TLS configuration for one connection.
func (f *listenerFiles) config(h *tls.ClientHelloInfo) (*tls.Config, error) {
	_ = f.source.Load(h.Context(), time.Now().Add(-certificatePoll)) // Refused logs the error
	return f.now.Load(), nil
}

func (f *listenerFiles) check(ctx context.Context) error {
	err := f.source.Load(ctx, time.Now().Add(-certificatePoll))
	if until := f.now.Load().Certificates[0].Leaf.NotAfter; err == nil && time.Now().After(until) {
		return fmt.Errorf("the certificate of %s expired at %s", f.cert, until.UTC().Format(time.RFC3339))
	}
	return err
}

// read returns the three files joined, with a NUL after each, since PEM contains none.
func (f *listenerFiles) read(context.Context) ([]byte, error) {
	var all []byte
	for _, path := range []string{f.cert, f.key, f.clientsOwn} {
		if path != "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("reading a listener's certificate: %w", err)
			}
			all = append(all, text...)
		}
		all = append(all, 0)
	}
	return all, nil
}

// take makes the files that read returned the listener's configuration.
func (f *listenerFiles) take(all []byte) error {
	texts := bytes.Split(all, []byte{0})
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return fmt.Errorf("reading a listener's certificate %s and key %s: %w", f.cert, f.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if f.clientsOwn != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		// A resumed session could rest on authorities that have been removed.
		config.SessionTicketsDisabled = true
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return fmt.Errorf("reading the CAs of clients: %w", errors.New(f.clientsOwn+" holds no PEM certificate"))
		}
	}
	if f.now.Swap(config) != nil {
		f.logger.Info("a certificate is in force", "file", f.cert, "until", pair.Leaf.NotAfter)
	}
	return nil
}

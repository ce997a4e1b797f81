package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/skeinhq/skein/internal/password"
)

// Security has the settings for encryption and authentication. The zero value means plain text without authentication. Each new
// connection reads the files again, so that they can be rotated without a restart.
type Security struct {
	// TLS turns on TLS 1.2 or later.
	TLS bool
	// CAFile contains the trusted authorities in PEM. Empty: the system's authorities.
	CAFile string
	// CertFile and KeyFile contain the client certificate and its key in PEM. Set both or none.
	CertFile, KeyFile string
	// ServerName is the name in the brokers' certificates. Empty: the host of each broker's address.
	ServerName string

	// SASL is one of SASLMechanisms. Empty: none. PLAIN sends the password to the brokers, in plain text if there is no TLS.
	SASL string
	// User is the SASL user, PasswordFile the file with the password. A line end at the end of the file is ignored.
	User, PasswordFile string
}

// SASLMechanisms returns the values of Security.SASL.
func SASLMechanisms() []string { return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} }

// validate checks the settings without reading the files.
func (s Security) validate() error {
	var errs []error
	wrong := func(yes bool, text string) {
		if yes {
			errs = append(errs, errors.New("checking Kafka security: "+text))
		}
	}
	wrong(!s.TLS && s.CAFile+s.CertFile+s.KeyFile+s.ServerName != "",
		"a CA, a certificate, a key or a server name is given, and TLS is not: ask for TLS too")
	wrong((s.CertFile == "") != (s.KeyFile == ""), "a certificate goes with its key: give both or none")
	switch {
	case s.SASL == "":
		wrong(s.User+s.PasswordFile != "", "a user or a password is given, and no SASL mechanism: say which")
	case !slices.Contains(SASLMechanisms(), s.SASL):
		wrong(true, fmt.Sprintf("SASL mechanism %q is not one of %s", s.SASL, strings.Join(SASLMechanisms(), ", ")))
	default:
		wrong(s.User == "" || s.PasswordFile == "", "SASL needs a user and a file with the password")
	}
	return errors.Join(errs...)
}

// options returns the client options for these settings.
func (s Security) options() []kgo.Opt {
	var opts []kgo.Opt
	if s.TLS {
		// A dialer instead of DialTLSConfig, which would read the files only once.
		opts = append(opts, kgo.Dialer(s.dial))
	}
	if s.SASL != "" {
		opts = append(opts, kgo.SASL(s.mechanism()))
	}
	return opts
}

// dial connects over TLS.
func (s Security) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg, err := s.tlsConfig(addr)
	if err != nil {
		return nil, err
	}
	// The timeout includes the handshake.
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: cfg}
	conn, err := d.DialContext(ctx, network, addr)
	if untrusted := new(tls.CertificateVerificationError); errors.As(err, &untrusted) {
		return nil, fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	return conn, err
}

func (s Security) tlsConfig(addr string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("reading broker address %s: %w", addr, err)
		}
		cfg.ServerName = host
	}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA of Kafka: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reading the CA of Kafka: %s has no PEM certificate", s.CAFile)
		}
	}
	if s.CertFile != "" {
		own, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate for Kafka: %w", err)
		}
		cfg.Certificates = []tls.Certificate{own}
	}
	return cfg, nil
}

// CheckFiles returns why a new connection could not use the files, or nil. Connections that are open go on without them.
func (s Security) CheckFiles() error {
	if s.TLS {
		if _, err := s.tlsConfig("localhost:0"); err != nil { // the name matters only to connections
			return err
		}
	}
	if s.PasswordFile != "" {
		_, err := s.password()
		return err
	}
	return nil
}

func (s Security) mechanism() sasl.Mechanism {
	scramAuth := func(context.Context) (scram.Auth, error) {
		text, err := s.password()
		return scram.Auth{User: s.User, Pass: text}, err
	}
	switch s.SASL {
	case "SCRAM-SHA-256":
		return scram.Sha256(scramAuth)
	case "SCRAM-SHA-512":
		return scram.Sha512(scramAuth)
	default: // validated
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			text, err := s.password()
			return plain.Auth{User: s.User, Pass: text}, err
		})
	}
}

func (s Security) password() (string, error) {
	text, err := password.Read(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("reading the password of Kafka: %w", err)
	}
	return text, nil
}

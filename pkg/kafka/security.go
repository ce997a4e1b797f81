package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/skeinhq/skein/internal/password"
)

// Security has the settings for encryption and authentication. The zero value means plain text without authentication. Each new
// connection reads the files again, so that they can be rotated without a restart. Connections whose session the brokers limit
// (KIP-368) log in anew before it ends, without losing a request.
type Security struct {
	// TLS turns on TLS 1.2 or later.
	TLS bool
	// CAFile contains the trusted authorities in PEM. Empty: the system's authorities.
	CAFile string
	// CertFile and KeyFile contain the client certificate and its key in PEM. Set both or none.
	CertFile, KeyFile string
	// ServerName is the name in the brokers' certificates. Empty: the host of each broker's address.
	ServerName string

	// SASL is one of SASLMechanisms. Empty: none. PLAIN sends the password to the brokers, in plain text if there is no TLS, and
	// OAUTHBEARER the token. AWS_MSK_IAM takes its credentials where AWS's programs look for them.
	SASL string
	// User is the SASL user, PasswordFile the file with the password. A line end at the end of the file is ignored. With OAuth.URL they
	// are the client id and its secret.
	User, PasswordFile string
	// OAuth says where OAUTHBEARER gets its token.
	OAuth OAuth
}

const (
	oauthBearer = "OAUTHBEARER"
	awsMSKIAM   = "AWS_MSK_IAM"
)

// SASLMechanisms returns the values of Security.SASL.
func SASLMechanisms() []string {
	return []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", oauthBearer, awsMSKIAM}
}

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
	case s.SASL == "GSSAPI":
		wrong(true, "Kerberos (GSSAPI) is not offered: have the brokers open a listener for client certificates or for one of "+
			strings.Join(SASLMechanisms(), ", "))
	case !slices.Contains(SASLMechanisms(), s.SASL):
		wrong(true, fmt.Sprintf("SASL mechanism %q is not one of %s", s.SASL, strings.Join(SASLMechanisms(), ", ")))
	case s.SASL == oauthBearer:
		errs = append(errs, s.validateOAuth())
	case s.SASL == awsMSKIAM:
		wrong(!s.TLS, "AWS_MSK_IAM needs TLS: MSK offers it at its port 9098, over TLS only")
		wrong(s.User+s.PasswordFile != "", "AWS_MSK_IAM takes no user and no password: AWS's environment gives its credentials")
	default:
		wrong(s.User == "" || s.PasswordFile == "", "SASL needs a user and a file with the password")
	}
	wrong(s.SASL != oauthBearer && s.OAuth != OAuth{}, "OAuth settings are given, and the SASL mechanism is not OAUTHBEARER: ask for it too")
	return errors.Join(errs...)
}

// options returns the client options for these settings. The logger may be nil.
func (s Security) options(logger *slog.Logger) []kgo.Opt {
	var opts []kgo.Opt
	if s.TLS {
		// A dialer instead of DialTLSConfig, which would read the files only once.
		opts = append(opts, kgo.Dialer(s.dial))
	}
	if s.SASL != "" {
		opts = append(opts, kgo.SASL(s.mechanism(logger)))
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
	var err error
	if cfg.RootCAs, err = authorities(s.CAFile); err != nil {
		return nil, fmt.Errorf("reading the CA of Kafka: %w", err)
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
	if _, err := authorities(s.OAuth.CAFile); err != nil {
		return fmt.Errorf("reading the CA of the token endpoint: %w", err)
	}
	if file := s.OAuth.TokenFile; file != "" {
		token, err := password.Read(file)
		if err != nil {
			return fmt.Errorf("reading the token for Kafka: %w", err)
		}
		if c, _ := claimsOf(strings.TrimSpace(token)); c.ExpiresAt != nil && c.ExpiresAt.Before(time.Now()) {
			return fmt.Errorf("reading the token for Kafka: it expired at %s: see to what renews %s", c.ExpiresAt.UTC().Format(time.RFC3339), file)
		}
	}
	if s.PasswordFile != "" {
		_, err := s.password()
		return err
	}
	return nil
}

// authorities reads the certificates of a file. The result is nil, which means the system's, if no file is named.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no PEM certificate", file)
	}
	return pool, nil
}

func (s Security) mechanism(logger *slog.Logger) sasl.Mechanism {
	scramAuth := func(context.Context) (scram.Auth, error) {
		text, err := s.password()
		return scram.Auth{User: s.User, Pass: text}, err
	}
	switch s.SASL {
	case "SCRAM-SHA-256":
		return scram.Sha256(scramAuth)
	case "SCRAM-SHA-512":
		return scram.Sha512(scramAuth)
	case oauthBearer:
		return bearer{tokens: s.tokens(), logger: logger}
	case awsMSKIAM:
		return iam{}
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

package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/internal/client"
)

// defaultURL is where "skein dev" listens by default.
const defaultURL = "http://127.0.0.1:8420"

// server is the HTTP API that a command calls, and as whom.
type server struct {
	url, keyFile              string
	caFile, certFile, ownFile string
	environ                   []string
	// context is the name of a context, and flags are those of the command, which take precedence over it.
	context string
	flags   *pflag.FlagSet
}

// serverFlags adds the flags. There is none for the key itself: the arguments of a process can be read
// by all others of the machine, and stay in a shell's history.
func serverFlags(cmd *cobra.Command, s *server) {
	switch words := strings.Fields(cmd.Use); {
	case len(words) == 2 && words[1] == "THREAD", words[0] == "blame", words[0] == "erase":
		cmd.ValidArgsFunction = completeThread(s)
	case len(words) > 1 && words[1] == "THREAD":
		cmd.ValidArgsFunction = completeRuns(s)
	}
	s.flags = cmd.Flags()
	cmd.Flags().StringVar(&s.context, "context", "", "`NAME` of a context (see skein context); by default the current one")
	cmd.Flags().StringVar(&s.url, "url", defaultURL, "`URL` of the HTTP API")
	cmd.Flags().StringVar(&s.keyFile, "api-key-file", "", "`FILE` with the API key; without it, the variable "+app.APIKeyVariable+" does")
	cmd.Flags().StringVar(&s.caFile, "server-ca-file", "", "PEM `FILE` of the CAs to trust for an https:// URL; by default the system's")
	cmd.Flags().StringVar(&s.certFile, "client-cert-file", "", "PEM `FILE` with your client certificate, if the server requires one")
	cmd.Flags().StringVar(&s.ownFile, "client-key-file", "", "PEM `FILE` with the certificate's private key")
}

// connect calls f with a client for the server.
func (s *server) connect(f func(c *client.Client) error) error {
	if err := s.applyContext(); err != nil {
		return err
	}
	key, err := s.key()
	if err != nil {
		return err
	}
	secure, err := s.tls()
	if err != nil {
		return err
	}
	c, err := client.New(s.url, client.WithAPIKey(key), client.WithTLS(secure))
	if err != nil {
		return app.Usagef("%w", err)
	}
	defer c.Close()
	return refusedHint(f(c), key)
}

// tls returns how https:// is spoken; nil is the system's way.
func (s *server) tls() (*tls.Config, error) {
	if s.caFile+s.certFile+s.ownFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.caFile != "" {
		text, err := os.ReadFile(s.caFile)
		if err != nil {
			return nil, app.Usagef("reading the CAs of --server-ca-file: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, app.Usagef("reading the CAs of --server-ca-file: %s holds no PEM certificate", s.caFile)
		}
	}
	if s.certFile+s.ownFile != "" {
		pair, err := tls.LoadX509KeyPair(s.certFile, s.ownFile)
		if err != nil {
			return nil, app.Usagef("reading --client-cert-file and --client-key-file: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// key returns the API key, or "" if none is set: "skein dev" asks for none.
func (s *server) key() (string, error) {
	var key, from string
	for _, v := range s.environ {
		if value, ok := strings.CutPrefix(v, app.APIKeyVariable+"="); ok {
			key, from = value, app.APIKeyVariable
		}
	}
	if s.keyFile != "" {
		text, err := os.ReadFile(s.keyFile)
		if err != nil {
			return "", app.Usagef("reading API key: %w", err)
		}
		key, from = string(text), s.keyFile
		if strings.TrimSpace(key) == "" {
			return "", app.Usagef("reading API key: %s is empty", from)
		}
	}
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		// It would not pass as a header, and the error of that would repeat it.
		return "", app.Usagef("reading API key: %s does not hold an API key", from)
	}
	return key, nil
}

// refusedHint adds to a refusal of the server what the caller can do. A read that the server refuses as malformed is a usage error, as one that the
// command refuses is.
func refusedHint(err error, key string) error {
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusBadRequest && refused.Method == http.MethodGet:
		return app.Usagef("%w", err)
	case refused.Status != http.StatusUnauthorized:
		return err
	case key == "":
		return fmt.Errorf("%w: pass --api-key-file FILE (or %s)", err, app.APIKeyVariable)
	default:
		return fmt.Errorf("%w: the server does not know this API key", err)
	}
}

package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/client"
	"github.com/skeinhq/skein/pkg/search"
)

// defaultURL is the default address of "skein dev".
const defaultURL = "http://127.0.0.1:8420"

// server is the HTTP API that a command calls, and the credentials for it.
type server struct {
	out *output
	// url is the address of an installation that has one for all; else publishURL is that of ingest and readURL that of query.
	url, publishURL, readURL           string
	keyFile, caFile, certFile, ownFile string
	// adminURLs are the admin addresses of processes, and adminToken is the file with their token.
	adminURLs  []string
	adminToken string
	// context is the name of a context. The command's flags take precedence over it.
	context string
	flags   *pflag.FlagSet
}

// onServer makes a command call the HTTP API. It adds the flags of the server, and passes f a client for that server. If the
// command's arguments are THREAD or RUN, a 404 becomes the error that there is no such thread or run.
func onServer(cmd *cobra.Command, out *output, f func(ctx context.Context, c *client.Client, args []string) error) *server {
	at := serverFlags(cmd, out)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return at.connect(func(c *client.Client) error {
			err := f(cmd.Context(), c, args)
			if len(args) == 0 || !strings.HasPrefix(cmd.Use, cmd.Name()+" THREAD") {
				return err
			}
			_, run := runPath(args)
			return out.found(err, args[0], run)
		})
	}
	return at
}

// serverFlags adds the flags of the server, and completes the arguments in the command's usage. There is no flag for the key
// itself, since other users of the machine can read a process's arguments and shells keep them in their history.
func serverFlags(cmd *cobra.Command, out *output) *server {
	s := &server{out: out, flags: cmd.Flags()}
	switch words := strings.Fields(cmd.Use); {
	case len(words) == 2 && words[1] == "THREAD", words[0] == "blame", words[0] == "erase":
		cmd.ValidArgsFunction = completeIDs(s, false)
	case len(words) > 1 && words[1] == "THREAD":
		cmd.ValidArgsFunction = completeIDs(s, true)
	}
	cmd.Flags().StringVar(&s.url, "url", defaultURL, "`URL` of the HTTP API, if one address serves both ingest and query")
	cmd.Flags().StringVar(&s.publishURL, "publish-url", "", "`URL` of the ingest stage, which publishes, cancels and erases")
	cmd.Flags().StringVar(&s.readURL, "read-url", "", "`URL` of the query stage, which reads")
	cmd.Flags().StringVar(&s.keyFile, "api-key-file", "", "`FILE` with the API key; without it, the variable "+app.APIKeyVariable+" does")
	s.secureFlags(cmd)
	return s
}

// secureFlags adds the flags of the context and of TLS.
func (s *server) secureFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.context, "context", "", "`NAME` of a context (see skein context); by default the current one")
	cmd.Flags().StringVar(&s.caFile, "server-ca-file", "", "PEM `FILE` of the CAs to trust for an https:// URL; by default the system's")
	cmd.Flags().StringVar(&s.certFile, "client-cert-file", "", "PEM `FILE` with your client certificate, if the server requires one")
	cmd.Flags().StringVar(&s.ownFile, "client-key-file", "", "PEM `FILE` with the certificate's private key")
}

// connect calls f with a client for the server.
func (s *server) connect(f func(c *client.Client) error) error {
	given := *s // without what the context sets, for hints
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
	read, publish, err := s.addresses()
	if err != nil {
		return err
	}
	c, err := client.New(read, client.WithPublishURL(publish), client.WithAPIKey(key), client.WithTLS(secure))
	if err != nil {
		return app.Usagef("%w", err)
	}
	defer c.Close()
	c = c.Noting(func(text string) { s.out.note("%s", oneLine(text, 1000)) })
	s.out.at = &given
	return s.named(addressHint(refusedHint(f(c), key), read, publish))
}

// named adds to the error of a request, of which the command line may not say where it went, the context that did.
func (s *server) named(err error) error {
	var refused *client.Error
	if s.context == "" || !errors.Is(err, client.ErrUnreachable) && !errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%w; by context %s", err, oneLine(s.context, 80))
}

// withoutAddresses leaves out the variables with addresses, or a context, that those on the command line replace.
func withoutAddresses(flags *pflag.FlagSet, environ []string) []string {
	with := func(names ...string) bool { return slices.ContainsFunc(names, flags.Changed) }
	return slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "SKEIN_URL":
			return with("context", "publish-url", "read-url")
		case "SKEIN_PUBLISH_URL", "SKEIN_READ_URL":
			return with("context", "url")
		case "SKEIN_ADMIN_URL":
			return with("context")
		case "SKEIN_CONTEXT":
			return with("url", "publish-url", "read-url", "admin-url")
		}
		return false
	})
}

// addressed reports whether a flag or setting has an address.
func (s *server) addressed() bool {
	return s.flags != nil && (s.flags.Changed("url") || s.flags.Changed("publish-url") || s.flags.Changed("read-url") ||
		s.flags.Changed("admin-url"))
}

// addresses returns the addresses of query and ingest; one of them may be "".
func (s *server) addresses() (read, publish string, err error) {
	switch {
	case s.publishURL+s.readURL == "":
		return s.url, s.url, nil
	case s.url != defaultURL || s.flags.Changed("url"):
		return "", "", app.Usagef("--url is for one address that serves both stages: pass either --url, or --publish-url and --read-url (or the same settings)")
	}
	return s.readURL, s.publishURL, nil
}

// addressHint adds to an error which address to pass, if the request had none or went to the wrong stage.
func addressHint(err error, read, publish string) error {
	var refused *client.Error
	const both = "--publish-url and --read-url (or to skein context set)"
	switch {
	case errors.Is(err, client.ErrNoReadURL):
		return app.Usagef("%w: pass --read-url URL, or only --url URL if one address serves both stages", err)
	case errors.Is(err, client.ErrNoPublishURL):
		return app.Usagef("%w: pass --publish-url URL, or only --url URL if one address serves both stages", err)
	case !errors.As(err, &refused):
		return err
	case refused.NoRoute:
		return app.Usagef("%w: the address is not that of Skein's HTTP API, or of another version: check --url, or %s", err, both)
	case refused.ServedBy == "query":
		read, publish = refused.URL, read
	case refused.ServedBy == "ingest":
		publish, read = refused.URL, publish
	default:
		return err
	}
	return app.Usagef("%w: pass --publish-url %s --read-url %s, also to skein context set", err, cmp.Or(publish, "URL"), cmp.Or(read, "URL"))
}

// tls returns the settings for https:// URLs. A nil result means Go's defaults.
func (s *server) tls() (*tls.Config, error) {
	if s.caFile+s.certFile+s.ownFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.caFile != "" {
		var err error
		if c.RootCAs, err = app.ReadCAs(s.caFile); err != nil {
			return nil, app.Usagef("reading the CAs of --server-ca-file: %w", err)
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

// key returns the API key, or "" if none is set, as for "skein dev" on a loopback address.
func (s *server) key() (string, error) {
	var key, from string
	for _, v := range s.out.environ {
		if value, ok := strings.CutPrefix(v, app.APIKeyVariable+"="); ok && s.flags != nil {
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
		// The text is no valid header, and the HTTP client's error would print it.
		return "", app.Usagef("reading API key: %s does not hold an API key", from)
	}
	return key, nil
}

// refusedHint adds a hint to a 401 of the server. It turns a 400 of the server for a GET into a usage error.
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

// runPath returns the API path of RUN, or of THREAD if there is no RUN among the arguments.
func runPath(args []string) (path, run string) {
	if len(args) < 2 {
		return client.ThreadPath(args[0]), ""
	}
	return client.RunPath(args[0], args[1]), args[1]
}

// set adds a parameter unless its value is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// decode decodes JSON. Its errors call the document what.
func decode(text []byte, what string, v any) error {
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("decoding %s: %w", what, err)
	}
	return nil
}

// elements returns the elements of one member of an answer.
func elements(answer []byte, member string) (list []json.RawMessage, err error) {
	var members map[string]json.RawMessage
	if err := decode(answer, "answer", &members); err != nil {
		return nil, err
	}
	return list, decode(members[member], member, &list)
}

// pageSize is the maximum number of elements of a list that one request asks for.
const pageSize = 1000

// each calls f with the elements of a list, each also as unchanged JSON, but with at most limit of them unless limit is 0. It reports
// whether there are more. The argument member names the member of an answer with the elements.
func each[T any](
	ctx context.Context, c *client.Client, path, member string, q url.Values, limit int, f func(T, json.RawMessage) error,
) (more bool, err error) {
	size := pageSize
	if limit > 0 {
		size = min(size, limit+1)
	}
	q.Set("limit", strconv.Itoa(size))
	n := 0
	for raw, err := range c.List(ctx, path, member, q) {
		if err != nil {
			return false, err
		}
		if n++; limit > 0 && n > limit {
			return true, nil
		}
		var v T
		if err := decode(raw, member, &v); err != nil {
			return false, err
		}
		if err := f(v, raw); err != nil {
			return false, err
		}
	}
	return false, nil
}

// eachThread is each for threads that match a query.
func eachThread(
	ctx context.Context, c *client.Client, q url.Values, limit int, f func(t client.Thread, raw json.RawMessage) error,
) error {
	_, err := each(ctx, c, "/v1/threads", "threads", q, limit, f)
	return err
}

// threadIDs returns the ids of the threads that match a query, archived ones included.
func threadIDs(ctx context.Context, c *client.Client, q url.Values, limit int) (ids []string, err error) {
	q.Set("archived", search.ArchivedAll)
	err = eachThread(ctx, c, q, limit, func(t client.Thread, _ json.RawMessage) error {
		ids = append(ids, t.ThreadID)
		return nil
	})
	return ids, err
}

// found turns a 404 into an error with its exit code and a command that lists what exists.
func (o *output) found(err error, thread, run string) error {
	if !client.IsNotFound(err) {
		return err
	}
	if run != "" {
		return app.NotFoundf("there is no run %s in thread %s; its runs: %s", oneLine(run, 80), oneLine(thread, 80),
			o.hint("lineage", thread))
	}
	return app.NotFoundf("there is no thread %s; all threads: %s", oneLine(thread, 80), o.hint("threads"))
}

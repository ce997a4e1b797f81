package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"github.com/skeinhq/skein/internal/password"
)

// OAuth says where OAUTHBEARER gets its token: from a file, or from a token endpoint for client credentials, which are Security.User
// and Security.PasswordFile. Set TokenFile or URL.
type OAuth struct {
	// TokenFile contains the token. Something else renews it.
	TokenFile string
	// URL is the token endpoint, https:// or on loopback. All clients of the process share a token.
	URL string
	// Scope are the scopes to ask for, separated by spaces. Empty: the identity provider's default.
	Scope string
	// CAFile contains the authorities to trust for URL, in PEM. Empty: the system's.
	CAFile string
	// Extensions are sent to the brokers with the token (RFC 7628), as KEY=VALUE separated by commas.
	Extensions string
}

var extension = regexp.MustCompile(`^[A-Za-z]+=[\x21-\x7e]+$`)

func (o OAuth) extensions() map[string]string {
	all := make(map[string]string)
	for pair := range strings.SplitSeq(o.Extensions, ",") {
		key, value, _ := strings.Cut(pair, "=")
		all[key] = value
	}
	return all // kgo leaves out the empty key
}

func (s Security) validateOAuth() error {
	wrong := func(text string) error { return errors.New("checking Kafka security: " + text) }
	o := s.OAuth
	if (o.TokenFile == "") == (o.URL == "") {
		return wrong("OAUTHBEARER needs a file with a token or the URL of a token endpoint: give one of them")
	}
	for pair := range strings.SplitSeq(o.Extensions, ",") {
		if o.Extensions != "" && !extension.MatchString(pair) {
			return wrong(fmt.Sprintf("OAuth extension %q is not KEY=VALUE, with a key of letters", pair))
		}
	}
	if o.TokenFile != "" {
		if s.User+s.PasswordFile+o.Scope+o.CAFile != "" {
			return wrong("a user, a password, a scope or a CA goes with a token endpoint, and a file with the token is given")
		}
		return nil
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.User != nil:
		return wrong("the URL of the token endpoint is not https://HOST/PATH")
	case u.Scheme != "https" && !(u.Scheme == "http" && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())):
		return wrong("the token endpoint would get the client's secret in plain text: give an https:// URL")
	case s.User == "" || s.PasswordFile == "":
		return wrong("a token endpoint needs a user, which is the client id, and a file with its password, the client's secret")
	}
	return nil
}

// bearer is kgo's OAUTHBEARER, but for the reason of a refusal, which kgo drops.
type bearer struct {
	tokens *tokens
	logger *slog.Logger
}

func (bearer) Name() string { return oauthBearer }

func (b bearer) Authenticate(ctx context.Context, host string) (sasl.Session, []byte, error) {
	token, err := b.tokens.get(ctx, b.logger)
	if err != nil {
		return nil, nil, err
	}
	auth := oauth.Auth{Token: token, Extensions: b.tokens.of.OAuth.extensions()}
	session, first, err := auth.AsMechanism().Authenticate(ctx, host)
	return bearerSession{Session: session, tokens: b.tokens, token: token}, first, err
}

type bearerSession struct {
	sasl.Session
	tokens *tokens
	token  string
}

// Challenge gets an empty answer, or the reason of a refusal (RFC 7628, 3.2.2).
func (s bearerSession) Challenge(answer []byte) (bool, []byte, error) {
	if len(answer) == 0 {
		return s.Session.Challenge(answer)
	}
	var reason struct{ Status, Scope string }
	if json.Unmarshal(answer, &reason) != nil || reason.Status == "" {
		reason.Status = "no reason"
	}
	if reason.Scope != "" {
		reason.Status += ", they want scope " + reason.Scope
	}
	why := s.tokens.blame(s.token, time.Now())
	err := fmt.Errorf("%w: the brokers refuse the token (%.200q): %s", ErrDenied, reason.Status, why)
	s.tokens.drop(s.token, err)
	return false, nil, err
}

// claimsOf returns what a token says, unverified. It returns false if it is not a JSON Web Token.
func claimsOf(token string) (c jwt.RegisteredClaims, ok bool) {
	_, _, err := jwt.NewParser().ParseUnverified(token, &c)
	return c, err == nil || c.ExpiresAt != nil
}

// blame says what may be wrong with a token that was refused. The brokers keep the reason to their log.
func (t *tokens) blame(token string, now time.Time) string {
	c, ok := claimsOf(token)
	if !ok {
		return "it is not a JSON Web Token, so the brokers' log must say why"
	}
	from := c.NotBefore
	if from == nil {
		from = c.IssuedAt
	}
	age := func(at time.Time) time.Duration { return now.Sub(at).Abs().Round(time.Second) }
	switch {
	case c.ExpiresAt != nil && c.ExpiresAt.Before(now) && t.of.OAuth.TokenFile != "":
		return fmt.Sprintf("it expired %v ago: see to what renews %s", age(c.ExpiresAt.Time), t.of.OAuth.TokenFile)
	case c.ExpiresAt != nil && c.ExpiresAt.Before(now):
		return fmt.Sprintf("it expired %v ago, by this machine's clock: this clock or the identity provider's is off", age(c.ExpiresAt.Time))
	case from != nil && from.After(now):
		return fmt.Sprintf("it becomes valid in %v, by this machine's clock: this clock or the identity provider's is off", age(from.Time))
	}
	expires := "without an end"
	if c.ExpiresAt != nil {
		expires = "valid until " + c.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("it is for audience %.200q, from issuer %.200q, %s: compare with sasl.oauthbearer.expected.audience and "+
		"expected.issuer of the brokers, whose log says why", []string(c.Audience), c.Issuer, expires)
}

const (
	// tokenTimeout limits one request for a token. A starting stage waits longer for Kafka, so that it can log the reason.
	tokenTimeout = 5 * time.Second
	// tokenPatience is how long a connection waits for a new token while the old one is valid.
	tokenPatience = time.Second
	// tokenPause is how long the endpoint is left alone after an error or a refusal. Clients connect again many times a second.
	tokenPause = 2 * time.Second
)

// failure is an error of getting credentials. A connection that waits for them does not return it.
type failure struct {
	err error
	at  time.Time
}

// within returns the error if it is younger than age. f may be nil.
func (f *failure) within(age time.Duration) error {
	if f == nil || time.Since(f.at) > age {
		return nil
	}
	return f.err
}

// tokens gets tokens for the connections of this process. A refused or expired token is never kept.
type tokens struct {
	of      Security
	request singleflight.Group
	cfg     clientcredentials.Config // of requests; it remembers how the endpoint wants the secret

	mu            sync.Mutex
	token         string
	renew, expire time.Time
	failed        *failure // of the last request, or the brokers' refusal of its token
	asking        bool     // a request is under way
	used          bool     // since renewal asked last
	timer         *time.Timer
	logger        *slog.Logger // of a client that has one
}

// shared has the tokens of each Security. There are many short-lived clients, and each would ask the identity provider.
var shared sync.Map

func (s Security) tokens() *tokens {
	t, _ := shared.LoadOrStore(s, &tokens{of: s})
	return t.(*tokens)
}

// get returns the token for a new connection, or for one whose session ends.
func (t *tokens) get(ctx context.Context, logger *slog.Logger) (string, error) {
	if file := t.of.OAuth.TokenFile; file != "" {
		token, err := password.Read(file)
		if err != nil {
			return "", fmt.Errorf("reading the OAuth token for Kafka: %w", err)
		}
		return strings.TrimSpace(token), nil
	}
	now := time.Now()
	t.mu.Lock()
	token, renew, expire, failed := t.token, t.renew, t.expire, t.failed.within(tokenPause)
	t.used, t.logger = true, cmp.Or(logger, t.logger)
	t.mu.Unlock()
	switch {
	case now.Before(renew), failed != nil && now.Before(expire):
		return token, nil
	case failed != nil:
		return "", failed
	}
	// The request goes on if this client is closed meanwhile, because others may wait for it.
	answer := t.request.DoChan("", func() (any, error) { return t.ask(context.WithoutCancel(ctx)) })
	var late <-chan time.Time
	if now.Before(expire) {
		late = time.After(min(tokenPatience, time.Until(expire)))
	}
	select {
	case a := <-answer:
		switch {
		case a.Err == nil:
			return a.Val.(string), nil
		case time.Now().After(expire):
			return "", a.Err
		}
		return token, nil
	case <-late:
		return token, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ask requests a new token.
func (t *tokens) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	began := time.Now()
	t.mu.Lock()
	t.asking = true
	t.mu.Unlock()
	token, err := t.fetch(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	if err != nil {
		t.failed = &failure{err, time.Now()}
		if left := time.Until(t.expire); left > 0 {
			if t.logger != nil {
				t.logger.Warn("the OAuth token for Kafka is not renewed: the old one serves until it expires", "expires", t.expire, "error", err)
			}
			t.used = true // so that renewal asks again
			t.renewIn(left / 2)
		}
		return "", err
	}
	t.failed = nil
	// The lifetime is relative, so it holds whatever this machine's clock says. Without one, the token is used once.
	t.token, t.renew, t.expire = token.AccessToken, began.Add(time.Until(token.Expiry)*4/5), token.Expiry
	t.renewIn(time.Until(t.renew))
	return t.token, nil
}

// renewIn lets renewal run later. The caller must hold t.mu.
func (t *tokens) renewIn(wait time.Duration) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(max(wait, tokenPause), t.renewal)
}

// renewal asks for the next token if a connection has used this one. Connections ask shortly before it expires, which is too late if
// the endpoint is away just then.
func (t *tokens) renewal() {
	t.mu.Lock()
	due := t.used && time.Now().Before(t.expire)
	t.used = false
	t.mu.Unlock()
	if due {
		_, _, _ = t.request.Do("", func() (any, error) { return t.ask(context.Background()) })
	}
}

// drop forgets a token that was refused, so that connections ask for a new one, after tokenPause.
func (t *tokens) drop(token string, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token == token {
		t.token, t.renew, t.expire, t.failed = "", time.Time{}, time.Time{}, &failure{why, time.Now()}
	}
}

// lastTrouble returns why there is no token, if one is asked for, or the last request has failed just now.
func (t *tokens) lastTrouble() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case time.Now().Before(t.expire):
		return nil
	case t.asking && t.failed == nil:
		return fmt.Errorf("waiting for a token from %s", t.of.OAuth.URL)
	case t.asking:
		return t.failed.err
	}
	return t.failed.within(tokenTimeout + tokenPause)
}

// fetch asks the token endpoint. The library reads at most 1 MiB of the answer.
func (t *tokens) fetch(ctx context.Context) (*oauth2.Token, error) {
	s := t.of
	secret, err := s.password()
	if err != nil {
		return nil, err
	}
	cas, err := authorities(s.OAuth.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA of the token endpoint: %w", err)
	}
	client := &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: cas},
		},
		// The secret goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	t.cfg.ClientID, t.cfg.ClientSecret, t.cfg.TokenURL, t.cfg.Scopes = s.User, secret, s.OAuth.URL, strings.Fields(s.OAuth.Scope)
	token, err := t.cfg.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return nil, fmt.Errorf("asking %s for a token: %w", s.OAuth.URL, s.explainFetch(ctx, err))
	}
	return token, nil
}

// explainFetch says what to do about an error of the token endpoint. It leaves out the answer's body, which may be a page.
func (s Security) explainFetch(ctx context.Context, err error) error {
	refused, answered := errors.AsType[*oauth2.RetrieveError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, sent := errors.AsType[*url.Error](err)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("no answer within %v: see that it is up, and reached from here (network policy, proxy)", tokenTimeout)
	case untrusted:
		return fmt.Errorf("its certificate is not trusted, name the file of its CA: %w", err)
	case sent:
		return err // the network's
	case !answered:
		return errors.New("the answer is not a token in JSON: see that this is the token endpoint, and no page or proxy answers in its place")
	}
	status, said := refused.Response.StatusCode, ""
	if refused.ErrorCode != "" {
		said = fmt.Sprintf(" (%.100q: %.300q)", refused.ErrorCode, refused.ErrorDescription)
	}
	switch {
	case refused.ErrorCode == "invalid_scope":
		return fmt.Errorf("it refuses scope %q%s", s.OAuth.Scope, said)
	case refused.ErrorCode == "unauthorized_client" || refused.ErrorCode == "unsupported_grant_type": //nolint:misspell // OAuth's spelling
		return fmt.Errorf("client %q may not log in by client credentials%s: allow it that grant there", s.User, said)
	case refused.ErrorCode == "invalid_client" || status == http.StatusUnauthorized:
		return fmt.Errorf("it refuses client %q%s: see its id, and its secret in %s", s.User, said, s.PasswordFile)
	case status >= 500 || status == http.StatusTooManyRequests:
		return fmt.Errorf("it answers %s%s: see what ails it", refused.Response.Status, said)
	}
	return fmt.Errorf("it answers %s%s: see that this is the URL of its token endpoint", refused.Response.Status, said)
}

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/skeinhq/skein/internal/reload"
	"github.com/skeinhq/skein/pkg/record"
)

const (
	// jwksRefresh is the interval of fetching a key set from a URL. A token with an unknown key id causes a fetch at once, unless the
	// last one was less than jwksPause ago.
	jwksRefresh = 5 * time.Minute
	jwksPause   = 10 * time.Second
	jwksTimeout = 5 * time.Second
	// maxJWKSBytes limits the size of a key set; maxTokenBytes that of a token.
	maxJWKSBytes  = 1 << 20
	maxTokenBytes = 16 << 10
	// MaxTokenSkew is the maximum of TokenConfig.Skew.
	MaxTokenSkew = 5 * time.Minute
)

// signatures are the accepted signature algorithms. None is symmetric: with HMAC, anyone with the public key could sign (key confusion).
var signatures = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// TokenConfig configures the accepted JSON Web Tokens (RFC 7519).
type TokenConfig struct {
	// JWKS is the file or URL of the key set (RFC 7517).
	JWKS string
	// Issuer and Audience are the required values of the claims iss and aud.
	Issuer, Audience string
	// TenantClaim is the name of the claim with the tenant, ScopeClaim that of the claim with the scopes, which are a space-separated
	// text (RFC 8693) or a list. Unknown scopes are ignored.
	TenantClaim, ScopeClaim string
	// Skew is how far the issuer's clock may be off.
	Skew time.Duration
}

// DefaultTokenConfig returns the claims tenant and scope, and a skew of 30 s.
func DefaultTokenConfig() TokenConfig {
	return TokenConfig{TenantClaim: "tenant", ScopeClaim: "scope", Skew: 30 * time.Second}
}

// Validate returns the first error of the configuration.
func (c TokenConfig) Validate() error {
	switch {
	case c.JWKS == "":
		return errors.New("tokens need a key set (JWKS), a file or a URL")
	case c.Issuer == "" || c.Audience == "":
		return errors.New("tokens need an issuer and an audience: without them, a token that was made for another service would be taken")
	case c.TenantClaim == "" || c.ScopeClaim == "":
		return errors.New("tokens need the names of the claims that hold tenant and scopes")
	case c.Skew < 0 || c.Skew > MaxTokenSkew:
		return fmt.Errorf("the clock skew is %v; it must be between 0 and %v", c.Skew, MaxTokenSkew)
	}
	if !c.remote() {
		return nil
	}
	u, err := url.Parse(c.JWKS)
	if err != nil || u.Host == "" {
		return errors.New("the address of the key set is not a URL")
	}
	return checkKeySetURL(u)
}

// checkKeySetURL refuses URLs without TLS, except on loopback, because a key set must not be changed in transit.
func checkKeySetURL(u *url.URL) error {
	if ip := net.ParseIP(u.Hostname()); u.Scheme != "https" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the key set %q must be fetched over https: whoever changes it on the way signs tokens", u.Redacted())
	}
	return nil
}

// keySet returns the file or URL of the key set, without a password, for errors and logs.
func (c TokenConfig) keySet() string {
	if u, err := url.Parse(c.JWKS); err == nil && c.remote() {
		return u.Redacted()
	}
	return c.JWKS
}

// maxRedirects is how many redirects a fetch of the key set follows.
const maxRedirects = 5

// checkRedirect refuses too many redirects, and those from https to http or to a URL that checkKeySetURL refuses.
func checkRedirect(to *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it is redirected more than %d times", maxRedirects)
	}
	if via[0].URL.Scheme == "https" && to.URL.Scheme != "https" {
		return fmt.Errorf("it is redirected from https to %s: whoever changes it on the way signs tokens", to.URL.Redacted())
	}
	return checkKeySetURL(to.URL)
}

func (c TokenConfig) remote() bool {
	return strings.HasPrefix(c.JWKS, "http://") || strings.HasPrefix(c.JWKS, "https://")
}

// Tokens authenticates by JSON Web Tokens: "Authorization: Bearer …", or Header in its place. Run reloads the key set: a file every
// 2 s, a URL every 5 minutes. If that fails, the last key set stays in force. Before the first key set, Tokens refuses every token.
type Tokens struct {
	*reload.Source

	cfg     TokenConfig
	parser  *jwt.Parser
	client  *http.Client
	logger  *slog.Logger
	metrics *tokenMetrics
	keys    atomic.Pointer[keyfunc.Keyfunc]
}

// OpenTokens reads the key set for the first time. It returns an error only for the configuration. It logs an error of the key set,
// which Ready then returns.
func OpenTokens(ctx context.Context, cfg TokenConfig, logger *slog.Logger, reg prometheus.Registerer) (*Tokens, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Tokens{
		cfg: cfg, logger: logger, metrics: newTokenMetrics(reg),
		client: &http.Client{Timeout: jwksTimeout, CheckRedirect: checkRedirect},
		parser: jwt.NewParser(jwt.WithValidMethods(signatures), jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Skew)),
	}
	t.Source = t.newSource()
	_ = t.Load(ctx, time.Now()) // logged, and Ready returns it
	return t, nil
}

func (t *Tokens) newSource() *reload.Source {
	s := &reload.Source{
		What: "the key set " + t.cfg.keySet(), Read: reload.File(t.cfg.JWKS, maxJWKSBytes), Take: t.take, Failing: t.metrics.stale,
		Refused: func(err error) {
			if t.keys.Load() == nil {
				t.logger.Error("the key set of tokens was not read; no token gets in until it is", "error", err)
			} else {
				t.logger.Error("the key set of tokens was not read; the one read before stays in force", "error", err)
			}
		},
	}
	if t.cfg.remote() {
		s.Read, s.Every = t.fetch, jwksRefresh
	}
	return s
}

// Run reloads the key set until ctx ends.
func (t *Tokens) Run(ctx context.Context) error {
	defer t.client.CloseIdleConnections()
	return t.Source.Run(ctx)
}

// take puts a key set in force. It ignores keys that are not for signatures.
func (t *Tokens) take(raw []byte) error {
	n := 0
	var set jwkset.JWKSMarshal
	if err := json.Unmarshal(raw, &set); err != nil {
		return err
	}
	storage := jwkset.NewMemoryStorage()
	for _, m := range set.Keys {
		if m.KTY == jwkset.KtyOct || m.USE != "" && m.USE != jwkset.UseSig {
			continue
		}
		key, err := jwkset.NewJWKFromMarshal(m, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		if errors.Is(err, jwkset.ErrUnsupportedKey) {
			continue
		}
		if err != nil {
			return fmt.Errorf("key %.100q: %w", m.KID, err)
		}
		if err := storage.KeyWrite(context.Background(), key); err != nil {
			return err
		}
		n++
	}
	if n == 0 {
		return errors.New("it holds no public key for signatures")
	}
	keys, err := keyfunc.New(keyfunc.Options{Storage: storage})
	if err != nil {
		return err
	}
	t.keys.Store(&keys)
	t.metrics.keys.Set(float64(n))
	t.logger.Info("a key set of tokens is in force", "keys", n)
	return nil
}

// fetch gets the key set from its URL.
func (t *Tokens) fetch(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.cfg.JWKS, nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", answer.Status)
	}
	return reload.Bounded(answer.Body, maxJWKSBytes)
}

// Authenticate implements Authenticator. Errors do not contain the token.
func (t *Tokens) Authenticate(r *http.Request) (Identity, error) {
	id, err := t.recheck(r)
	outcome := tokenValid
	switch {
	case errors.Is(err, ErrExpired):
		outcome = tokenExpired
	case err != nil:
		outcome = tokenRefused
	}
	t.metrics.requests.WithLabelValues(outcome).Inc()
	return id, err
}

func (t *Tokens) recheck(r *http.Request) (Identity, error) {
	text, err := Bearer(r)
	if err != nil {
		return Identity{}, err
	}
	if len(text) > maxTokenBytes {
		return Identity{}, fmt.Errorf("%w: the token is larger than %d bytes", ErrUnauthenticated, maxTokenBytes)
	}
	keys := t.keys.Load()
	if keys == nil {
		return Identity{}, fmt.Errorf("%w: the key set of tokens was not read yet", ErrUnauthenticated)
	}
	claims := jwt.MapClaims{}
	_, err = t.parser.ParseWithClaims(text, claims, (*keys).Keyfunc)
	if errors.Is(err, jwkset.ErrKeyNotFound) && t.cfg.remote() {
		// The issuer may use a new key. The fetch does not end with this request, because others wait for the same fetch.
		_ = t.Load(context.WithoutCancel(r.Context()), time.Now().Add(-jwksPause)) // logged
		claims = jwt.MapClaims{}
		_, err = t.parser.ParseWithClaims(text, claims, (*t.keys.Load()).Keyfunc)
	}
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return Identity{}, ErrExpired
	case err != nil:
		return Identity{}, fmt.Errorf("%w: the token is not valid: %w", ErrUnauthenticated, reasonOf(err))
	}
	return t.identity(claims)
}

// reasonOf returns a constant error for a refused token, because the parser's errors contain parts of the token.
func reasonOf(err error) error {
	for _, known := range []error{
		jwt.ErrTokenSignatureInvalid, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience, jwt.ErrTokenNotValidYet,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenUnverifiable, jwt.ErrTokenMalformed,
	} {
		if errors.Is(err, known) {
			return known
		}
	}
	return errors.New("it cannot be verified")
}

func (t *Tokens) identity(claims jwt.MapClaims) (Identity, error) {
	tenantID, _ := claims[t.cfg.TenantClaim].(string)
	if err := record.ValidateID(tenantID); err != nil {
		return Identity{}, fmt.Errorf("%w: the token's claim %q does not hold a tenant: %w", ErrUnauthenticated, t.cfg.TenantClaim, err)
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil { // impossible: the parser requires it
		return Identity{}, fmt.Errorf("%w: the token does not expire", ErrUnauthenticated)
	}
	subject, _ := claims.GetSubject() // "" if it is not a string
	id := Identity{Tenant: tenantID, Name: subject, Expires: expires.Add(t.cfg.Skew)}
	var named []string
	switch v := claims[t.cfg.ScopeClaim].(type) {
	case string:
		named = strings.Fields(v)
	case []any:
		for _, s := range v {
			if text, ok := s.(string); ok {
				named = append(named, text)
			}
		}
	}
	for _, s := range Scopes() {
		if slices.Contains(named, string(s)) {
			id.Scopes = append(id.Scopes, s)
		}
	}
	return id, nil
}

// Either returns an Authenticator that uses keys for API keys and missing credentials, and tokens for other bearer tokens.
func Either(keys *KeyFile, tokens *Tokens) Authenticator { return either{keys, tokens} }

type either struct {
	keys   *KeyFile
	tokens *Tokens
}

// of returns the authenticator for a request's credentials.
func (e either) of(r *http.Request) rechecker {
	if text, err := Bearer(r); err != nil || strings.HasPrefix(text, keyPrefix) {
		return e.keys
	}
	return e.tokens
}

// Authenticate implements Authenticator.
func (e either) Authenticate(r *http.Request) (Identity, error) { return e.of(r).Authenticate(r) }

func (e either) recheck(r *http.Request) (Identity, error) { return e.of(r).recheck(r) }

// tokenMetrics are the metrics of Tokens.
type tokenMetrics struct {
	requests *prometheus.CounterVec // outcome
	keys     prometheus.Gauge
	stale    prometheus.Gauge
}

// The outcomes of tokens.
const (
	tokenValid   = "valid"
	tokenExpired = "expired"
	tokenRefused = "refused"
)

func newTokenMetrics(reg prometheus.Registerer) *tokenMetrics {
	auto := promauto.With(reg)
	m := &tokenMetrics{
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "skein_auth_tokens_total", Help: "Requests whose credentials were checked as a JSON Web Token, by outcome: " +
				"valid, expired, or refused.",
		}, []string{"outcome"}),
		keys: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_auth_jwks_keys", Help: "Public keys in force for tokens.",
		}),
		stale: auto.NewGauge(prometheus.GaugeOpts{
			Name: "skein_auth_jwks_stale", Help: "1 while the key set for tokens cannot be read; the previous one stays in force.",
		}),
	}
	for _, o := range []string{tokenValid, tokenExpired, tokenRefused} {
		m.requests.WithLabelValues(o)
	}
	return m
}

package tenant_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skeinhq/skein/internal/logtest"
	"github.com/skeinhq/skein/pkg/tenant"
)

const (
	issuer   = "https://issuer.example"
	audience = "skein"
)

var (
	rsaKey, otherRSAKey = newRSAKey(), newRSAKey()
	ecKey               = newECKey()
)

func newRSAKey() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
}

func newECKey() *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return k
}

// jwks is a key set with public keys by id.
func jwks(t *testing.T, keys map[string]any) []byte {
	t.Helper()
	var set jwkset.JWKSMarshal
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		k, err := jwkset.NewJWKFromKey(keys[id], jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: id, USE: jwkset.UseSig}})
		if err != nil {
			t.Fatal(err)
		}
		set.Keys = append(set.Keys, k.Marshal())
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func tokenConfig(jwks string) tenant.TokenConfig {
	c := tenant.DefaultTokenConfig()
	c.JWKS, c.Issuer, c.Audience = jwks, issuer, audience
	return c
}

func openTokens(t *testing.T, c tenant.TokenConfig) *tenant.Tokens {
	t.Helper()
	tokens, err := tenant.OpenTokens(t.Context(), c, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func claims() jwt.MapClaims {
	return jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": "agent-7", "tenant": "acme", "scope": "openid read publish",
		"exp": time.Now().Add(time.Hour).Unix(),
	}
}

func with(name string, value any) jwt.MapClaims {
	c := claims()
	if c[name] = value; value == nil {
		delete(c, name)
	}
	return c
}

func signed(t *testing.T, method jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func presents(text string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": {"Bearer " + text}}}
}

func TestTokens_TakesOnlyWhatTheIssuerSignedForThisAudience(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, jwks(t, map[string]any{"rsa": rsaKey.Public(), "ec": ecKey.Public()}), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := openTokens(t, tokenConfig(path))
	now := time.Now()
	for name, text := range map[string]string{
		"RSA":                     signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, claims()),
		"RSA-PSS":                 signed(t, jwt.SigningMethodPS512, "rsa", rsaKey, claims()),
		"EC":                      signed(t, jwt.SigningMethodES256, "ec", ecKey, claims()),
		"no key id":               signed(t, jwt.SigningMethodES256, "", ecKey, claims()),
		"audience among others":   signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("aud", []string{"other", audience})),
		"scopes as a list":        signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("scope", []string{"read", "publish", "x"})),
		"expired within the skew": signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("exp", now.Add(-20*time.Second).Unix())),
		"begins within the skew":  signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("nbf", now.Add(20*time.Second).Unix())),
	} {
		id, err := tokens.Authenticate(presents(text))
		if err != nil || id.Tenant != "acme" || id.Name != "agent-7" || !id.Allows(tenant.ScopeRead) || !id.Allows(tenant.ScopePublish) ||
			id.Allows(tenant.ScopeErase) {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
		if until := time.Until(id.Expires); until < 5*time.Second || until > time.Hour+time.Minute {
			t.Errorf("%s: it expires in %v", name, until)
		}
	}

	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	good := signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, claims())
	parts := strings.Split(good, ".")
	forged, err := json.Marshal(with("tenant", "umbrella"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"alg none":                         signed(t, jwt.SigningMethodNone, "rsa", jwt.UnsafeAllowNoneSignatureType, claims()),
		"alg none without key id":          signed(t, jwt.SigningMethodNone, "", jwt.UnsafeAllowNoneSignatureType, claims()),
		"HMAC with the public key as PEM":  signed(t, jwt.SigningMethodHS256, "rsa", publicPEM, claims()),
		"HMAC with the public key as DER":  signed(t, jwt.SigningMethodHS256, "rsa", der, claims()),
		"HMAC without key id":              signed(t, jwt.SigningMethodHS512, "", publicPEM, claims()),
		"another key under a known id":     signed(t, jwt.SigningMethodRS256, "rsa", otherRSAKey, claims()),
		"another key without id":           signed(t, jwt.SigningMethodRS256, "", otherRSAKey, claims()),
		"another key under an unknown id":  signed(t, jwt.SigningMethodRS256, "theirs", otherRSAKey, claims()),
		"the id of a key of another kind":  signed(t, jwt.SigningMethodES256, "rsa", ecKey, claims()),
		"another payload":                  parts[0] + "." + base64.RawURLEncoding.EncodeToString(forged) + "." + parts[2],
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"cut":                              good[:len(good)-8],
		"no token":                         "x",
		"larger than any token":            good + strings.Repeat("A", 17<<10),
		"another issuer":                   signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("iss", "https://evil.example")),
		"no issuer":                        signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("iss", nil)),
		"another audience":                 signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("aud", "billing")),
		"no audience":                      signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("aud", nil)),
		"expired":                          signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("exp", now.Add(-time.Minute).Unix())),
		"never expires":                    signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("exp", nil)),
		"begins later":                     signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("nbf", now.Add(time.Minute).Unix())),
		"no tenant":                        signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("tenant", nil)),
		"a tenant that is a number":        signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("tenant", 7)),
		"a tenant that is a list":          signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("tenant", []string{"acme"})),
		"a tenant that cannot be in a key": signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("tenant", "..")),
	} {
		id, err := tokens.Authenticate(presents(text))
		if !errors.Is(err, tenant.ErrUnauthenticated) || id.Tenant != "" {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
		if err != nil && (strings.Contains(err.Error(), text) || len(err.Error()) > 200) {
			t.Errorf("%s: the error repeats the token: %v", name, err)
		}
	}
	for name, scope := range map[string]any{"no scope": nil, "another's scopes": "openid profile", "a number": 1} {
		id, err := tokens.Authenticate(presents(signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, with("scope", scope))))
		if err != nil || len(id.Scopes) != 0 {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
}

// A key of the set that is for encryption, or symmetric, verifies nothing.
func TestTokens_PassesOverKeysThatAreNotForSignatures(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	oct, err := jwkset.NewJWKFromKey(secret,
		jwkset.JWKOptions{Marshal: jwkset.JWKMarshalOptions{Private: true}, Metadata: jwkset.JWKMetadataOptions{KID: "oct"}})
	if err != nil {
		t.Fatal(err)
	}
	enc, err := jwkset.NewJWKFromKey(otherRSAKey.Public(),
		jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: "enc", USE: jwkset.UseEnc}})
	if err != nil {
		t.Fatal(err)
	}
	sig, err := jwkset.NewJWKFromKey(rsaKey.Public(), jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: "rsa"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jwks.json")
	write := func(keys ...jwkset.JWK) {
		var set jwkset.JWKSMarshal
		for _, k := range keys {
			set.Keys = append(set.Keys, k.Marshal())
		}
		text, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(oct, enc)
	if err := openTokens(t, tokenConfig(path)).Ready(); err == nil {
		t.Error("a key set without a key for signatures is taken")
	}
	write(oct, enc, sig)
	tokens := openTokens(t, tokenConfig(path))
	if _, err := tokens.Authenticate(presents(signed(t, jwt.SigningMethodRS256, "rsa", rsaKey, claims()))); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"symmetric":      signed(t, jwt.SigningMethodHS256, "oct", secret, claims()),
		"for encryption": signed(t, jwt.SigningMethodRS256, "enc", otherRSAKey, claims()),
		"without id":     signed(t, jwt.SigningMethodRS256, "", otherRSAKey, claims()),
	} {
		if _, err := tokens.Authenticate(presents(text)); !errors.Is(err, tenant.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokens_ReadsAFileAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	one, two := jwks(t, map[string]any{"1": rsaKey.Public()}), jwks(t, map[string]any{"2": ecKey.Public()})
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Log
		tokens, err := tenant.OpenTokens(t.Context(), tokenConfig(path), slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "the key set of tokens was not read; no token gets in until it is") {
			t.Errorf("without a file it says %s", log.Take())
		}
		go func() { _ = tokens.Run(t.Context()) }()
		old, fresh := signed(t, jwt.SigningMethodRS256, "1", rsaKey, claims()), signed(t, jwt.SigningMethodES256, "2", ecKey, claims())
		for _, step := range []struct {
			name       string
			file       []byte
			old, fresh bool
		}{
			{"no file", nil, false, false}, {"the first key", one, true, false}, {"a broken file", []byte("{"), true, false},
			{"an empty set", []byte(`{"keys":[]}`), true, false}, {"the second key", two, false, true},
		} {
			if step.file != nil {
				if err := os.WriteFile(path, step.file, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * time.Second) // of the bubble
			synctest.Wait()
			_, oldErr := tokens.Authenticate(presents(old))
			_, freshErr := tokens.Authenticate(presents(fresh))
			if (oldErr == nil) != step.old || (freshErr == nil) != step.fresh || (tokens.Ready() == nil) != (step.old || step.fresh) {
				t.Errorf("%s: old %v, fresh %v, ready %v", step.name, oldErr, freshErr, tokens.Ready())
			}
			if stale := strings.HasPrefix(step.name, "a broken") || strings.HasPrefix(step.name, "an empty"); (tokens.Stale() != nil) != stale {
				t.Errorf("%s: stale is %v", step.name, tokens.Stale())
			}
		}
	})
}

// A key that the issuer has begun to sign with is fetched with its first token, and tokens with made-up key ids do not
// have the key set fetched again and again.
func TestTokens_FetchesAKeySetForAnUnknownKeyOnceInAWhile(t *testing.T) {
	var fetches atomic.Int32
	var set atomic.Pointer[[]byte]
	one, two := jwks(t, map[string]any{"1": rsaKey.Public()}), jwks(t, map[string]any{"1": rsaKey.Public(), "2": ecKey.Public()})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches.Add(1)
		if text := set.Load(); text != nil {
			_, _ = w.Write(*text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	set.Store(&one)
	tokens := openTokens(t, tokenConfig(server.URL))
	fresh := presents(signed(t, jwt.SigningMethodES256, "2", ecKey, claims()))
	for range 20 {
		if _, err := tokens.Authenticate(fresh); !errors.Is(err, tenant.ErrUnauthenticated) {
			t.Fatal(err)
		}
	}
	if n := fetches.Load(); n != 1 {
		t.Errorf("the key set was fetched %d times within the pause", n)
	}
	tenant.ForgetFetch(tokens)
	set.Store(&two)
	if _, err := tokens.Authenticate(fresh); err != nil {
		t.Error(err)
	}
	tenant.ForgetFetch(tokens)
	set.Store(nil)
	if _, err := tokens.Authenticate(presents(signed(t, jwt.SigningMethodES256, "3", ecKey, claims()))); !errors.Is(err,
		tenant.ErrUnauthenticated) {
		t.Error(err)
	}
	if _, err := tokens.Authenticate(fresh); err != nil {
		t.Errorf("a key set that cannot be fetched takes keys away: %v", err)
	}
}

func TestTokenConfig_NamesWhatIsMissing(t *testing.T) {
	good := tokenConfig("jwks.json")
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*tenant.TokenConfig){
		"no key set":             func(c *tenant.TokenConfig) { c.JWKS = "" },
		"no issuer":              func(c *tenant.TokenConfig) { c.Issuer = "" },
		"no audience":            func(c *tenant.TokenConfig) { c.Audience = "" },
		"no tenant claim":        func(c *tenant.TokenConfig) { c.TenantClaim = "" },
		"no scope claim":         func(c *tenant.TokenConfig) { c.ScopeClaim = "" },
		"a skew of an hour":      func(c *tenant.TokenConfig) { c.Skew = time.Hour },
		"a key set in the clear": func(c *tenant.TokenConfig) { c.JWKS = "http://issuer.example/jwks" },
		"no host":                func(c *tenant.TokenConfig) { c.JWKS = "https:///jwks" },
	} {
		c := good
		spoil(&c)
		if err := c.Validate(); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestEither_TellsKeysFromTokens(t *testing.T) {
	dir := t.TempDir()
	key, set := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "jwks.json")
	secret := tenant.NewKey()
	if err := tenant.AppendKey(key, tenant.Entry("a", "umbrella", tenant.Scopes(), secret)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(set, jwks(t, map[string]any{"1": ecKey.Public()}), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := tenant.OpenKeyFile(key, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	both := tenant.Either(keys, openTokens(t, tokenConfig(set)))
	for text, want := range map[string]string{secret: "umbrella", signed(t, jwt.SigningMethodES256, "1", ecKey, claims()): "acme"} {
		if id, err := both.Authenticate(presents(text)); err != nil || id.Tenant != want {
			t.Errorf("%+v, %v; want %s", id, err, want)
		}
	}
	for _, text := range []string{"", tenant.NewKey(), "a.b.c"} {
		if id, err := both.Authenticate(presents(text)); !errors.Is(err, tenant.ErrUnauthenticated) {
			t.Errorf("%+v, %v", id, err)
		}
	}
}

// Whoever can change a key set on its way signs tokens; and its address may hold a password.
func TestTokens_FetchAKeySetOverHTTPSToItsEnd(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the key set is fetched without TLS")
	}))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer secure.Close()
	var log strings.Builder
	cfg := tenant.DefaultTokenConfig()
	cfg.Issuer, cfg.Audience = "i", "a"
	cfg.JWKS = strings.Replace(secure.URL, "https://", "https://user:secret@", 1)
	tokens, err := tenant.OpenTokens(t.Context(), cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	tenant.UseClient(tokens, secure.Client(), slog.New(slog.NewTextHandler(&log, nil)))
	tenant.ForgetFetch(tokens)
	tenant.Reload(t.Context(), tokens)
	if err := tokens.Ready(); err == nil || !strings.Contains(err.Error(), "redirected from https to http://") {
		t.Errorf("it is not ready because of %v", err)
	}
	if text := log.String() + tokens.Ready().Error(); !strings.Contains(text, "level=ERROR") || strings.Contains(text, "secret") {
		t.Errorf("it says %s", text)
	}
	cfg.JWKS = "http://user:secret@keys.example.com/jwks"
	if err := cfg.Validate(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the address is refused with %v", err)
	}
}

package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuerName = "https://id.test"
	audience   = "kafka"
	keyID      = "1"
)

// Issuer signs tokens that the brokers of a SecuredCluster trust.
type Issuer struct{ key *ecdsa.PrivateKey }

// newIssuer writes its public key to a file, as a key set (JWKS).
func newIssuer(keysFile string) (*Issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	keys := fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","use":"sig","kid":%q,"x":%q,"y":%q}]}`, keyID,
		base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:]))
	if err := os.WriteFile(keysFile, []byte(keys), 0o600); err != nil {
		return nil, fmt.Errorf("writing a key set: %w", err)
	}
	return &Issuer{key: key}, nil
}

// Token returns a token for the user skein, which the brokers accept, but for the claims in change.
func (i *Issuer) Token(tb testing.TB, lifetime time.Duration, change map[string]any) string {
	tb.Helper()
	now := time.Now()
	// The end is a whole second. Rounded up, it is not before that of the endpoint's expires_in.
	claims := jwt.MapClaims{"iss": issuerName, "aud": audience, "sub": "skein", "iat": now.Unix(), "exp": now.Add(lifetime).Unix() + 1}
	maps.Copy(claims, change)
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["kid"] = keyID
	signed, err := token.SignedString(i.key)
	if err != nil {
		tb.Errorf("signing a token: %v", err) // also called by handlers, which must not end the test
	}
	return signed
}

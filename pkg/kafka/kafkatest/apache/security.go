package apache

import (
	"fmt"
	"maps"
)

// Security configures the listeners Login and MutualTLS. All its files are in PEM.
type Security struct {
	// KeystoreFile contains the nodes' certificate and key; CAFile contains the authority of the clients' certificates.
	KeystoreFile, CAFile string
	// Authorizer enables Kafka's own authorizer. Clients of the plain listeners (the other nodes and the test) may do
	// everything.
	Authorizer bool
	// User and Password are the credentials for SASL PLAIN. SCRAM users must be created at the brokers.
	User, Password string
	// KeysFile contains the keys (JWKS) of the tokens that the listener OAuth accepts, if they are from this issuer for this audience.
	KeysFile, Issuer, Audience string
}

// Listeners that Options.Security adds.
const (
	// Login requires TLS and a password by SASL PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Login = "LOGIN"
	// MutualTLS requires TLS with certificates of both sides.
	MutualTLS = "MUTUAL"
	// OAuth requires TLS and a token by SASL OAUTHBEARER.
	OAuth = "OAUTH"
)

// settings returns a node's settings for these listeners.
func (s *Security) settings() map[string]string {
	m := map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": s.KeystoreFile,
		"ssl.truststore.type": "PEM", "ssl.truststore.location": s.CAFile,
		"listener.name.mutual.ssl.client.auth":        "required",
		"listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.login.plain.sasl.jaas.config":  fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", s.User, s.Password),
	}
	const oauth = "listener.name.oauth."
	maps.Copy(m, map[string]string{
		oauth + "sasl.enabled.mechanisms":      "OAUTHBEARER",
		oauth + "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
		oauth + "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer." +
			"OAuthBearerValidatorCallbackHandler",
		oauth + "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "file://" + s.KeysFile,
		oauth + "oauthbearer.sasl.oauthbearer.expected.issuer":   s.Issuer,
		oauth + "oauthbearer.sasl.oauthbearer.expected.audience": s.Audience,
		// Without a limit, a session outlives its token.
		oauth + "oauthbearer.connections.max.reauth.ms": "3600000",
	})
	for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
		m["listener.name.login."+mechanism+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	}
	if s.Authorizer {
		m["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		m["super.users"] = "User:ANONYMOUS"
	}
	return m
}

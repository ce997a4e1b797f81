package apache

import "fmt"

// Security is what the listeners Login and MutualTLS have and ask for, files in PEM.
type Security struct {
	// KeystoreFile has the nodes' certificate and its key, CAFile the authority of clients' certificates.
	KeystoreFile, CAFile string
	// Authorizer asks Kafka's own authorizer what a user may do. Whoever comes over the plain listeners may do everything: other nodes, and
	// the test.
	Authorizer bool
	// User and Password are taken by SASL PLAIN. Users of SCRAM are the brokers' to make.
	User, Password string
}

// The listeners that Options.Security adds.
const (
	// Login is TLS, and a password by SASL PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
	Login = "LOGIN"
	// MutualTLS is TLS with a certificate from either side.
	MutualTLS = "MUTUAL"
)

// settings of a node for the two listeners.
func (s *Security) settings() map[string]string {
	m := map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": s.KeystoreFile,
		"ssl.truststore.type": "PEM", "ssl.truststore.location": s.CAFile,
		"listener.name.mutual.ssl.client.auth":        "required",
		"listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.login.plain.sasl.jaas.config":  fmt.Sprintf("org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", s.User, s.Password),
	}
	for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
		m["listener.name.login."+mechanism+".sasl.jaas.config"] = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	}
	if s.Authorizer {
		m["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		m["super.users"] = "User:ANONYMOUS"
	}
	return m
}

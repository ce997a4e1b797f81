package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificates names the PEM files of a certificate authority and of the certificates that it signed.
type certificates struct {
	caFile string
	// brokerFile contains the key and the certificate for 127.0.0.1, because Kafka requires both in one file.
	brokerFile                string
	clientFile, clientKeyFile string
}

// makeCertificates writes certificates into a folder. The certificates are valid for a day.
func makeCertificates(dir string) (certificates, error) {
	ca, caKey, err := Certificate("test authority", nil, nil)
	if err != nil {
		return certificates{}, err
	}
	c := certificates{
		caFile: filepath.Join(dir, "ca.pem"), brokerFile: filepath.Join(dir, "broker.pem"),
		clientFile: filepath.Join(dir, "client.pem"), clientKeyFile: filepath.Join(dir, "client-key.pem"),
	}
	files := map[string][]byte{c.caFile: encoded(ca)}
	for name, to := range map[string][2]string{"broker": {c.brokerFile, c.brokerFile}, "client": {c.clientFile, c.clientKeyFile}} {
		cert, key, err := Certificate(name, ca, caKey)
		if err != nil {
			return certificates{}, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return certificates{}, fmt.Errorf("encoding a key: %w", err)
		}
		files[to[0]] = append(files[to[0]], encoded(cert)...)
		files[to[1]] = append(files[to[1]], pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	}
	for path, text := range files {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return certificates{}, fmt.Errorf("writing a certificate: %w", err)
		}
	}
	return c, nil
}

func encoded(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

// Certificate returns a certificate for 127.0.0.1 and its key. It is signed by ca, or is a new authority if ca is nil.
func Certificate(name string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
	if ca == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		ca, caKey = template, key
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate: %w", err)
	}
	return cert, key, nil
}

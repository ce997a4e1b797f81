package clickhouse

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// Options configure a Store.
type Options struct {
	// Addrs are the servers: clickhouse://HOST:PORT (or HOST:PORT) for the native protocol, http://HOST:PORT and https://HOST:PORT
	// for HTTP, all with the same scheme. A connection goes to a random server, or to the next one if that server does not answer.
	Addrs []string
	// Database is the database's name; Migrate creates it. Empty: "skein".
	Database           string
	Username, Password string
	// PasswordFile is a file with the password, in place of Password. It is read for each HTTP request and for each native
	// connection, so the password can be rotated.
	PasswordFile string
	// TLS has the TLS settings; nil with https:// means Go's defaults.
	TLS *tls.Config

	// Cluster is the cluster of Migrate's ON CLUSTER clauses; empty means no such clause.
	Cluster string
	// Replicated makes Migrate create Replicated tables, with the server's default_replica_path. Do not change Cluster and
	// Replicated after the first migration.
	Replicated bool

	// Logger gets the driver's log lines; nil: none.
	Logger *slog.Logger
}

// DefaultDatabase is the default of Options.Database.
const DefaultDatabase = "skein"

const (
	// queryTimeout bounds one statement of a read, insertTimeout one of a write.
	queryTimeout  = 30 * time.Second
	insertTimeout = 2 * time.Minute
	// maxConnections bounds the concurrent statements.
	maxConnections = 16
	// blockRows and blockBytes bound one insert block; a single record may be larger. A block is in memory twice, as rows and as columns. The
	// server stores it as one part.
	blockRows  = 50_000
	blockBytes = 32 << 20
)

// dialTimeout bounds connecting: long enough for a distant server, shorter than a readiness probe.
const dialTimeout = 5 * time.Second

// Validate returns the first error in the options.
func (o Options) Validate() error {
	_, err := o.driver()
	return err
}

// driver returns the options of the driver.
func (o Options) driver() (*ch.Options, error) {
	if len(o.Addrs) == 0 {
		return nil, errors.New("ClickHouse: no address; give one such as http://localhost:8123 or clickhouse://localhost:9000")
	}
	if o.Password != "" && o.PasswordFile != "" {
		return nil, errors.New("ClickHouse: a password and a file with one; give one of them")
	}
	d := &ch.Options{
		Auth:        ch.Auth{Database: o.Database, Username: o.Username, Password: o.Password},
		TLS:         o.TLS,
		DialTimeout: dialTimeout,
		// Payloads are JSON: LZ4 saves two thirds of the traffic at a negligible cost.
		Compression: &ch.Compression{Method: ch.CompressionLZ4},
		// Spreads the load over all servers that answer.
		ConnOpenStrategy: ch.ConnOpenRandom,
		MaxOpenConns:     maxConnections,
		MaxIdleConns:     maxConnections,
		// Lets connections return to servers that were away, and follow changes of DNS.
		ConnMaxLifetime: 10 * time.Minute,
		ReadTimeout:     max(queryTimeout, insertTimeout),
		Logger:          o.Logger,
		ClientInfo:      ch.ClientInfo{Products: []struct{ Name, Version string }{{Name: "skein"}}},
	}
	scheme := ""
	for _, a := range o.Addrs {
		s, host, err := splitAddr(a)
		if err != nil {
			return nil, err
		}
		if scheme != "" && s != scheme {
			return nil, fmt.Errorf("ClickHouse: addresses of two kinds, %s:// and %s://", scheme, s)
		}
		scheme = s
		d.Addr = append(d.Addr, host)
	}
	if scheme != "clickhouse" {
		d.Protocol = ch.HTTP
	}
	if scheme == "http" && o.TLS != nil {
		return nil, errors.New("ClickHouse: TLS is asked for with an http:// address; write https://")
	}
	if scheme == "https" && o.TLS == nil {
		d.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return d, nil
}

// splitAddr parses an address. It refuses user and password, which would appear in error messages.
func splitAddr(a string) (scheme, host string, err error) {
	u, err := url.Parse(a)
	switch {
	case err != nil:
		return "", "", errors.New("ClickHouse: an address is no URL; write http://HOST:8123 or clickhouse://HOST:9000")
	case u.User != nil:
		return "", "", fmt.Errorf("ClickHouse: the address of %s holds a name or password; set them apart", u.Host)
	case !slices.Contains([]string{"clickhouse", "http", "https"}, u.Scheme) || u.Hostname() == "" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", "", fmt.Errorf("ClickHouse: address %q; write http://HOST:8123, https://HOST:8443 or clickhouse://HOST:9000", a)
	case u.Port() == "":
		port := map[string]string{"clickhouse": "9000", "http": "8123", "https": "8443"}[u.Scheme]
		return u.Scheme, u.Host + ":" + port, nil
	}
	return u.Scheme, u.Host, nil
}

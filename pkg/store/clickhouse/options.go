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

// Options say where the store is and how it is used.
type Options struct {
	// Addrs are the servers: clickhouse://HOST:PORT (or HOST:PORT) for the native protocol,
	// http://HOST:PORT and https://HOST:PORT for HTTP. All must be of one kind. A connection is made
	// to one at random; the next is tried when it does not answer.
	Addrs []string
	// Database is the database's name; Migrate creates it where it is missing. Empty: "skein".
	Database           string
	Username, Password string
	// PasswordFile, in the place of Password, holds it: read anew for each request over HTTP, and for
	// each connection over the native protocol, so that a secret that was rotated is seen.
	PasswordFile string
	// TLS, where not nil, is spoken with the servers. https:// means the system's defaults.
	TLS *tls.Config

	// Cluster, where not empty, has Migrate run its statements ON CLUSTER.
	Cluster string
	// Replicated has Migrate make Replicated tables, whose paths come from the server's
	// default_replica_path. Both are for the first migration and must then stay as they are.
	Replicated bool

	// QueryTimeout bounds one statement of a read, InsertTimeout one of a write. 0: the defaults.
	QueryTimeout, InsertTimeout time.Duration
	// MaxConnections bounds the statements at the same time. 0: the default.
	MaxConnections int
	// BlockRows and BlockBytes bound one insert block. 0: the defaults. A single record may be larger.
	BlockRows, BlockBytes int

	// Logger takes what the driver says; nil: nothing.
	Logger *slog.Logger
}

// The defaults.
const (
	DefaultDatabase       = "skein"
	DefaultQueryTimeout   = 30 * time.Second
	DefaultInsertTimeout  = 2 * time.Minute
	DefaultMaxConnections = 16
	// A block is held in memory twice, as rows and as columns; the server makes one part of it.
	DefaultBlockRows  = 50_000
	DefaultBlockBytes = 32 << 20
)

// dialTimeout bounds the making of a connection: long enough for a far server, short enough that a
// dead one is noticed within a readiness probe.
const dialTimeout = 5 * time.Second

// Validate says what is wrong with the options.
func (o Options) Validate() error {
	_, err := o.driver()
	return err
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Database == "" {
		o.Database = DefaultDatabase
	}
	if o.QueryTimeout == 0 {
		o.QueryTimeout = DefaultQueryTimeout
	}
	if o.InsertTimeout == 0 {
		o.InsertTimeout = DefaultInsertTimeout
	}
	def(&o.MaxConnections, DefaultMaxConnections)
	def(&o.BlockRows, DefaultBlockRows)
	def(&o.BlockBytes, DefaultBlockBytes)
	return o
}

// driver returns the options of the driver.
func (o Options) driver() (*ch.Options, error) {
	o = o.withDefaults()
	if len(o.Addrs) == 0 {
		return nil, errors.New("ClickHouse: no address; give one such as http://localhost:8123 or clickhouse://localhost:9000")
	}
	if o.QueryTimeout < 0 || o.InsertTimeout < 0 || o.MaxConnections < 0 || o.BlockRows < 0 || o.BlockBytes < 0 {
		return nil, errors.New("ClickHouse: timeouts, connections and block sizes must be more than 0")
	}
	if o.Password != "" && o.PasswordFile != "" {
		return nil, errors.New("ClickHouse: a password and a file with one; give one of them")
	}
	d := &ch.Options{
		Auth:        ch.Auth{Database: o.Database, Username: o.Username, Password: o.Password},
		TLS:         o.TLS,
		DialTimeout: dialTimeout,
		// Payloads are JSON: LZ4 takes two thirds off the wire at a cost that does not show.
		Compression: &ch.Compression{Method: ch.CompressionLZ4},
		// Load goes to all servers, and to those that are left.
		ConnOpenStrategy: ch.ConnOpenRandom,
		MaxOpenConns:     o.MaxConnections,
		MaxIdleConns:     o.MaxConnections,
		// Servers come back and addresses change hands: no connection is for ever.
		ConnMaxLifetime: 10 * time.Minute,
		ReadTimeout:     max(o.QueryTimeout, o.InsertTimeout),
		Logger:          o.Logger,
		ClientInfo: ch.ClientInfo{Products: []struct{ Name, Version string }{
			{Name: "skein"},
		}},
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

// splitAddr takes an address apart. Names and passwords have fields of their own, and would end up in
// error messages here.
func splitAddr(a string) (scheme, host string, err error) {
	text := a
	if !strings.Contains(text, "://") {
		text = "clickhouse://" + text
	}
	u, err := url.Parse(text)
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

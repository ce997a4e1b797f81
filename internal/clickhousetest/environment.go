package clickhousetest

import (
	"errors"
	"net/url"
	"os"
)

// fromEnvironment is the server that SKEIN_TEST_CLICKHOUSE names.
func fromEnvironment() (Server, error) {
	v := os.Getenv("SKEIN_TEST_CLICKHOUSE")
	if v == "" {
		return Server{}, none("SKEIN_TEST_CLICKHOUSE is not set")
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "clickhouse") { // its text may hold a password
		return Server{}, errors.New("reading SKEIN_TEST_CLICKHOUSE: want http://user:password@host:8123 or clickhouse://user:password@host:9000")
	}
	s := Server{Addr: u.Scheme + "://" + u.Host, Username: u.User.Username(), Part: "SKEIN_TEST_CLICKHOUSE (" + u.Host + ")"}
	s.Password, _ = u.User.Password()
	return s, nil
}

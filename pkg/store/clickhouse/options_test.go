package clickhouse

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

func TestOptions_AddressesNameTheProtocol(t *testing.T) {
	for _, c := range []struct {
		name     string
		addrs    []string
		tls      *tls.Config
		want     []string
		protocol ch.Protocol
		secure   bool
	}{
		{"native", []string{"clickhouse://db"}, nil, []string{"db:9000"}, ch.Native, false},
		{"native with TLS", []string{"clickhouse://db:9440"}, &tls.Config{}, []string{"db:9440"}, ch.Native, true},
		{"two servers", []string{"clickhouse://a", "clickhouse://b:9001"}, nil, []string{"a:9000", "b:9001"}, ch.Native, false},
		{"IPv6", []string{"clickhouse://[::1]:9000"}, nil, []string{"[::1]:9000"}, ch.Native, false},
		{"HTTP", []string{"http://db"}, nil, []string{"db:8123"}, ch.HTTP, false},
		{"HTTPS", []string{"https://db/"}, nil, []string{"db:8443"}, ch.HTTP, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Options{Addrs: c.addrs, TLS: c.tls}.driver()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(d.Addr, c.want) || d.Protocol != c.protocol || (d.TLS != nil) != c.secure {
				t.Errorf("%v, %v, TLS %t", d.Addr, d.Protocol, d.TLS != nil)
			}
		})
	}
}

func TestOptions_SayWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"no address", Options{}, "no address"},
		{"no scheme", Options{Addrs: []string{"db:8123"}}, "write http://"},
		{"an unknown scheme", Options{Addrs: []string{"tcp://db:9000"}}, "write http://"},
		{"a path", Options{Addrs: []string{"http://db/skein"}}, "write http://"},
		{"two kinds", Options{Addrs: []string{"http://db", "clickhouse://db"}}, "two kinds"},
		{"a password in the address", Options{Addrs: []string{"http://u:secret@db"}}, "set them apart"},
		{"TLS over plain HTTP", Options{Addrs: []string{"http://db"}, TLS: &tls.Config{}}, "write https://"},
		{"no URL", Options{Addrs: []string{"http://a b:secret"}}, "no URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.o.Validate()
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want one with %q and no secret", err, c.want)
			}
		})
	}
}

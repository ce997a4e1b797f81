// Command clickhouse is what runs in the stand-in for clickhouse/clickhouse-server: ClickHouse's engine behind its HTTP interface.
// The engine knows one user and lets everybody in as that one. It has the grants of the user in users.d, if there is a file.
package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"

	"github.com/skeinhq/skein/internal/clickhousetest/chdb"
)

const (
	data  = "/var/lib/clickhouse/chdb"
	users = "/etc/clickhouse-server/users.d/*.xml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	found, err := filepath.Glob(users)
	if err != nil {
		return err
	}
	var args []string
	if len(found) > 0 {
		config, err := asDefault(found[0])
		if err != nil {
			return err
		}
		args = append(args, "--config-file="+config)
	}
	h, err := chdb.New("/usr/lib/libchdb.so", data, 8, args...)
	if err != nil {
		return err
	}
	return http.ListenAndServe(":8123", h)
}

var grants = regexp.MustCompile(`(?s)<grants>(.*?)</grants>`)

// asDefault writes a configuration that gives the engine's user the grants in a file, and returns its path. Package chdb chooses a
// request's database by USE, which takes a right of its own; on a server the database default takes none.
func asDefault(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	found := grants.FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("reading %s: it grants nothing", file)
	}
	dir, err := os.MkdirTemp("", "clickhouse-")
	if err != nil {
		return "", err
	}
	usersFile, config := filepath.Join(dir, "users.xml"), filepath.Join(dir, "config.xml")
	err = os.WriteFile(usersFile, []byte(`<clickhouse><profiles><default/></profiles><quotas><default/></quotas><users><default>
<password/><networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota><grants>`+string(found[1])+
		`<query>GRANT SHOW DATABASES ON default.*</query></grants></default></users></clickhouse>`), 0o600)
	if err != nil {
		return "", err
	}
	return config, os.WriteFile(config, []byte("<clickhouse><users_config>"+usersFile+"</users_config></clickhouse>"), 0o600)
}

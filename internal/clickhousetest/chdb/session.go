//go:build linux && amd64

package chdb

import (
	"maps"
	"strings"
)

// session is a conn that is brought to each request's database and settings: over HTTP these belong to
// one request, in the engine to the session.
type session struct {
	conn     *conn
	database string
	settings map[string]string // what is set away from its default
}

func (s *session) prepare(database string, want map[string]string) error {
	if database == "" {
		database = "default"
	}
	if database != s.database {
		if _, err := s.conn.query([]byte("USE `"+strings.ReplaceAll(database, "`", "\\`")+"`"), "Null", nil); err != nil {
			return err
		}
		s.database = database
	}
	var set []string
	for name, value := range want {
		if current, ok := s.settings[name]; !ok || current != value {
			set = append(set, name+" = "+quote(value))
		}
	}
	for name := range s.settings {
		if _, ok := want[name]; !ok {
			set = append(set, name+" = DEFAULT")
		}
	}
	if len(set) == 0 {
		return nil
	}
	// Until it is known that all were taken, both the old and the new may be set.
	maps.Copy(s.settings, want)
	if _, err := s.conn.query([]byte("SET "+strings.Join(set, ", ")), "Null", nil); err != nil {
		return err
	}
	s.settings = maps.Clone(want)
	return nil
}

func quote(v string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(v) + "'"
}

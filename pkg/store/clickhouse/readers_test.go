package clickhouse

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/record"
	"github.com/skeinhq/skein/pkg/store"
)

// access is what the statements of docs/sql.md say for the readers of tenant acme. The engine takes users, their rights and
// filters from a file only; other statements are run as they stand.
type access struct {
	settings []string            // of the readers' profile: "name = value MIN x MAX y CONST"
	filters  map[string][]string // the tables of a filter, by the filter: what the views' user sees
	views    []string            // what the views' user may read
	readers  []string            // what readers may read
	run      []string            // the statements that make databases and views
}

// accessOf reads the statements. It fails on one that it does not know.
func accessOf(t *testing.T) access {
	t.Helper()
	text, err := os.ReadFile(sqlDocs)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Read-only access by tenant\n")
	_, rest, opened := strings.Cut(section, "```sql\n")
	block, _, closed := strings.Cut(rest, "```\n")
	if !opened || !closed {
		t.Fatalf("%s has no statements for readers", sqlDocs)
	}
	block = regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(block, "")
	a := access{filters: map[string][]string{}}
	list := func(text, before string) (items []string) {
		for item := range strings.SplitSeq(text, ",") {
			name, found := strings.CutPrefix(strings.TrimSpace(item), before)
			if !found {
				t.Fatalf("%s: %q does not begin with %q", sqlDocs, item, before)
			}
			items = append(items, name)
		}
		return items
	}
	var everybody []string // tables that Skein's user sees all of
	knows := []struct {
		pattern string
		take    func(found []string)
	}{
		{`CREATE SETTINGS PROFILE IF NOT EXISTS skein_readers SETTINGS (.*)`, func(f []string) { a.settings = list(f[1], "") }},
		{`CREATE ROW POLICY IF NOT EXISTS skein_acme_views ON (.*) FOR SELECT USING (.*) TO skein_acme_views`, func(f []string) {
			a.filters[f[2]] = list(f[1], "skein.")
		}},
		{`CREATE ROW POLICY IF NOT EXISTS skein_all ON (.*) FOR SELECT USING 1 TO skein`, func(f []string) { everybody = list(f[1], "skein.") }},
		{`GRANT (.*) TO skein_acme_views`, func(f []string) { a.views = list(f[1], "SELECT ON ") }},
		{`GRANT (.*) TO skein_acme`, func(f []string) { a.readers = list(f[1], "SELECT ON ") }},
		{`CREATE (?:DATABASE|OR REPLACE VIEW) .*`, func(f []string) { a.run = append(a.run, f[0]) }},
		{`CREATE USER IF NOT EXISTS skein_acme_views HOST NONE`, func([]string) {}},
		{`CREATE ROLE IF NOT EXISTS skein_acme SETTINGS PROFILE 'skein_readers'`, func([]string) {}},
		{`CREATE USER IF NOT EXISTS ana IDENTIFIED WITH sha256_password BY '…' DEFAULT ROLE skein_acme`, func([]string) {}},
	}
	for statement := range strings.SplitSeq(strings.TrimSuffix(strings.TrimSpace(block), ";"), ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		known := false
		for i := 0; i < len(knows) && !known; i++ {
			if found := regexp.MustCompile("^" + knows[i].pattern + "$").FindStringSubmatch(statement); found != nil {
				knows[i].take(found)
				known = true
			}
		}
		if !known {
			t.Errorf("%s has a statement that is not tried: %s", sqlDocs, statement)
		}
	}
	for _, tables := range a.filters {
		if !slices.Equal(tables, everybody) {
			t.Errorf("%s: Skein's user has policies on %v, the views' user on %v", sqlDocs, everybody, tables)
		}
	}
	return a
}

// of says a text for another tenant than acme.
func of(tenant, text string) string { return strings.ReplaceAll(text, "acme", tenant) }

// users is ClickHouse's users.xml with the users of the tenants' views. The engine takes its callers for the user default, who is
// a reader of the given tenant, or may do everything where there is none.
func (a access) users(t *testing.T, tenants []string, reader string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<clickhouse><quotas><default/></quotas><profiles><default/><readers>")
	var constraints strings.Builder
	for _, s := range a.settings {
		m := regexp.MustCompile(`^(\w+) = (\d+)(?: MIN (\d+))?(?: MAX (\d+))?( CONST)?$`).FindStringSubmatch(s)
		if m == nil {
			t.Fatalf("%s: the setting %q is not understood", sqlDocs, s)
		}
		fmt.Fprintf(&b, "<%[1]s>%[2]s</%[1]s>", m[1], m[2])
		fmt.Fprintf(&constraints, "<%s>", m[1])
		for i, bound := range []string{"min", "max"} {
			if m[3+i] != "" {
				fmt.Fprintf(&constraints, "<%[1]s>%[2]s</%[1]s>", bound, m[3+i])
			}
		}
		if m[5] != "" {
			constraints.WriteString("<readonly/>")
		}
		fmt.Fprintf(&constraints, "</%s>", m[1])
	}
	b.WriteString("<constraints>" + constraints.String() + "</constraints></readers></profiles><users>")
	user := func(name, profile, rest string) {
		const format = "<%[1]s><password/><networks><ip>::/0</ip></networks><profile>%[2]s</profile><quota>default</quota>%[3]s</%[1]s>"
		fmt.Fprintf(&b, format, name, profile, rest)
	}
	grants := func(tenant string, tables []string) string {
		queries := ""
		for _, table := range tables {
			queries += "<query>GRANT SELECT ON " + of(tenant, table) + "</query>"
		}
		return "<grants>" + queries + "</grants>"
	}
	for _, tenant := range tenants {
		filters := ""
		for filter, tables := range a.filters {
			var escaped strings.Builder
			_ = xml.EscapeText(&escaped, []byte(of(tenant, filter))) // a Builder takes everything
			for _, table := range tables {
				filters += fmt.Sprintf("<%[1]s><filter>%[2]s</filter></%[1]s>", table, escaped.String())
			}
		}
		user("skein_"+tenant+"_views", "default", "<databases><skein>"+filters+"</skein></databases>"+grants(tenant, a.views))
	}
	if reader == "" {
		user("default", "default", "<access_management>1</access_management>")
	} else {
		user("default", "readers", grants(reader, a.readers))
	}
	b.WriteString("</users></clickhouse>")
	return b.String()
}

// What docs/sql.md gives the readers of a tenant holds on the engine: they see that tenant's rows by the views, and nothing else.
func TestReaders_SeeTheirTenantAlone(t *testing.T) {
	said := accessOf(t)
	engine := clickhousetest.StartRestartable(t)
	engine.Database = "skein"
	s := connect(t, Options{Addrs: []string{engine.Addr}, Database: engine.Database, Username: engine.Username})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Follow(t.Context(), "a-topic"); err != nil {
		t.Fatal(err)
	}
	tenants := []string{"acme", "globex"}
	var entries []store.Entry
	for i, tenant := range tenants { // with the same ids
		version := int64(10 + 10*i)
		first, again := askedTwice(version)
		for _, e := range []*store.Entry{&first, &again} {
			e.Tenant, e.Run.Tenant, e.Run.Agent = tenant, tenant, "of "+tenant
			e.Run.Traceparent = fmt.Sprintf("00-%032x-00f067aa0ba902b7-01", 1+i)
		}
		erasure := &store.Erasure{Below: version, At: first.Run.StartedAt}
		title := &record.Detail{Name: record.DetailTitle, Value: "of " + tenant}
		entries = append(entries, first, again, store.Entry{Version: version + 2, Tenant: tenant, ThreadID: "erased", Erasure: erasure},
			store.Entry{Version: version + 3, Tenant: tenant, ThreadID: first.ThreadID, Detail: title})
	}
	if err := s.Write(t.Context(), append(entries, store.Entry{Version: 40, Position: &store.Position{Next: 40}})); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		t.Helper()
		if err := s.conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("INSERT INTO prices (model, input_per_million, output_per_million) VALUES ('large', 3, 8)")
	engine.Kill()
	engine.StartAs(said.users(t, tenants, ""))
	for _, tenant := range tenants {
		for _, statement := range said.run {
			exec(of(tenant, statement))
		}
	}
	const rows = "SELECT arrayStringConcat(arraySort(groupArray(toString(tuple(*)))), '\n') FROM "
	const tables = "SELECT arrayStringConcat(arraySort(groupArray(database || '.' || name)), ',') FROM system.tables " +
		"WHERE startsWith(database, 'skein')"
	all := strings.Split(text(t, s, tables), ",")
	// A view that joins a table with a filtered one has the right rows without a filter on the first, which may show in errors of conditions.
	for _, table := range said.views {
		byTenant := text(t, s, "SELECT toString(count()) FROM system.columns JOIN system.tables ON tables.database = columns.database AND "+
			"tables.name = table WHERE columns.name = 'tenant' AND engine != 'View' AND columns.database || '.' || table = '"+table+"'") == "1"
		for filter, filtered := range said.filters {
			if has := slices.Contains(filtered, strings.TrimPrefix(table, "skein.")); has != byTenant {
				t.Errorf("%s has rows of tenants: %t, and the filter %s: %t", table, byTenant, filter, has)
			}
		}
	}
	want := map[string]string{} // what readers shall see, by view
	for _, view := range strings.Split(text(t, s, tables+" AND database = 'skein' AND (engine = 'View' OR name = 'prices')"), ",") {
		for _, tenant := range tenants {
			of := strings.Replace(view, "skein.", "skein_"+tenant+".", 1)
			if want[of] = text(t, s, rows+view); view != "skein.prices" {
				want[of] = text(t, s, rows+view+" WHERE tenant = '"+tenant+"'")
			}
			if want[of] == "" {
				t.Errorf("%s has nothing of %s: the test shows nothing", view, tenant)
			}
			if !slices.Contains(all, of) {
				t.Errorf("%s makes no view %s", sqlDocs, of)
			}
		}
	}
	s = connect(t, Options{Addrs: []string{engine.Addr}, Database: "default", Username: engine.Username})
	for _, tenant := range tenants {
		engine.Kill()
		engine.StartAs(said.users(t, tenants, tenant))
		own := "skein_" + tenant + "."
		var seen []string
		for _, table := range all {
			if !strings.HasPrefix(table, own) {
				refuses(t, s, rows+table)
				continue
			}
			seen = append(seen, table)
			if got := text(t, s, rows+table); got != want[table] {
				t.Errorf("%s has\n%s\nand not\n%s", table, got, want[table])
			}
			for _, statement := range []string{"INSERT INTO %s SELECT * FROM %s", "DROP VIEW %s", "TRUNCATE TABLE %s", "RENAME TABLE %s TO %sx",
				"ALTER TABLE %s ADD COLUMN x Int8", "CREATE OR REPLACE VIEW %s AS SELECT 1", "CREATE VIEW %sx AS SELECT 1"} {
				refuses(t, s, strings.ReplaceAll(statement, "%s", table))
			}
		}
		if got := text(t, s, tables); got != strings.Join(seen, ",") {
			t.Errorf("readers of %s are shown the tables %s", tenant, got)
		}
		if got := text(t, s, "SELECT toString(count()) FROM system.parts"); got != "0" {
			t.Errorf("readers of %s are shown %s parts", tenant, got)
		}
		for _, statement := range []string{
			"INSERT INTO skein.prices (model) VALUES ('x')", "DROP TABLE skein.runs", "ALTER TABLE skein.runs DELETE WHERE 1",
			"DELETE FROM skein.runs WHERE 1", "TRUNCATE TABLE skein.runs", "DROP DATABASE skein", "CREATE DATABASE theirs",
			"CREATE TABLE " + own + "theirs ENGINE = MergeTree ORDER BY tuple() AS SELECT 1",
			"SELECT * FROM mergeTreeIndex('skein', 'runs')", "SELECT * FROM remote('127.0.0.1', 'skein', 'runs')",
			"SELECT * FROM file('/etc/hostname', 'LineAsString')", "SELECT * FROM url('" + engine.Addr + "', 'LineAsString')",
			"INSERT INTO skein.prices (model) SETTINGS readonly = DEFAULT VALUES ('x')",
			"SET readonly = 0", "SELECT 1 SETTINGS apply_deleted_mask = 0",
			"SELECT 1 SETTINGS max_execution_time = 0.5", "SELECT 1 SETTINGS max_execution_time = 61",
			"SELECT 1 SETTINGS max_memory_usage = 0", "SELECT 1 SETTINGS max_memory_usage = 4000000001",
		} {
			refuses(t, s, statement)
		}
	}
}

// refuses checks that the server refuses a reader's statement for want of a right, or as a setting is bounded. Another error shows nothing.
func refuses(t *testing.T, s *Store, statement string) {
	t.Helper()
	const accessDenied, readOnly, outOfBounds = 497, 164, 452
	err := s.conn.Exec(t.Context(), statement)
	var e *ch.Exception
	if !errors.As(err, &e) || (e.Code != accessDenied && e.Code != readOnly && e.Code != outOfBounds) {
		t.Errorf("a reader's %q: %v", statement, err)
	}
}

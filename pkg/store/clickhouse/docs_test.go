package clickhouse

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/sql.md")

const (
	sqlDocs  = "../../../docs/sql.md"
	docsMark = "<!-- Made from the schema by go test ./pkg/store/clickhouse -run Docs -update; write above this line. -->\n"
)

// Those who ask questions ask the views, and fill prices.
func TestDocs_DescribeEveryColumnAsTheSchemaDoes(t *testing.T) {
	s := open(t)
	var b strings.Builder
	table := ""
	query := `SELECT c.table, c.name, c.type, c.comment FROM system.columns AS c
WHERE c.database = currentDatabase() AND (startsWith(c.table, 'v_') OR c.table = 'prices')
ORDER BY c.table = 'prices', c.table, c.position`
	err := s.each(t.Context(), query, nil, func(r row) error {
		var of, name, typ, comment string
		if err := r.Scan(&of, &name, &typ, &comment); err != nil {
			return err
		}
		if comment == "" {
			t.Errorf("%s.%s has no comment in the schema", of, name)
		}
		if of != table {
			fmt.Fprintf(&b, "\n### %s\n\n| column | type | meaning |\n|---|---|---|\n", of)
			table = of
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", name, strings.ReplaceAll(typ, "|", "\\|"), strings.ReplaceAll(comment, "|", "\\|"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile(sqlDocs)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, found := strings.Cut(string(have), docsMark)
	if !found {
		t.Fatalf("%s has no line %q", sqlDocs, docsMark)
	}
	if *update {
		if err := os.WriteFile(sqlDocs, []byte(head+docsMark+b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if tail != b.String() {
		t.Errorf("%s does not say what the schema does; run go test ./pkg/store/clickhouse -run Docs -update", sqlDocs)
	}
}

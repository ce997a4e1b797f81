package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/lineage/draw"
)

// column is a column of a table.
type column struct {
	name  string
	keep  bool // the column is never left out
	wide  bool // only wide tables have the column
	right bool // right-aligned, for numbers
}

// tableGap is the number of spaces between columns.
const tableGap = 2

// listed is an element of a list: its JSON, the fields of -o name, and its row in a table.
type listed struct {
	raw any
	id  []string
	row []string
}

// lister prints a list in one of the forms of listFlags: JSON lines and names as the elements come, the other forms at the end.
type lister struct {
	out     *output
	columns []column
	// none is the note that replaces an empty table.
	none string
	n    int
	list []listed
}

func (l *lister) add(e listed) error {
	l.n++
	switch l.out.form {
	case formJSONL:
		return l.out.json(e.raw)
	case formName:
		return l.out.text(table(make([]column, len(e.id)), [][]string{e.id}, 0, false))
	}
	l.list = append(l.list, e)
	return nil
}

// end prints what add has not printed.
func (l *lister) end() error {
	raws, rows := make([]any, len(l.list)), make([][]string, len(l.list))
	for i, e := range l.list {
		raws[i], rows[i] = e.raw, e.row
	}
	switch {
	case l.out.form == formJSON:
		return l.out.json(raws)
	case l.n == 0:
		l.out.note("%s", l.none)
	case len(l.list) > 0:
		return l.out.text(table(l.columns, rows, l.out.drawingWidth(), l.out.form == formWide))
	}
	return nil
}

// table formats rows with a header to fit a terminal of the given width. It never cuts fields. It leaves out columns that do not fit,
// the last one first, unless wide is set. For width 0, which means no terminal, it separates fields with tabs and prints no header.
func table(columns []column, rows [][]string, width int, wide bool) string {
	var shown []int
	for i, c := range columns {
		if wide || !c.wide {
			shown = append(shown, i)
		}
	}
	var b strings.Builder
	if width == 0 {
		for _, row := range rows {
			for n, i := range shown {
				if n > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(field(row[i]))
			}
			b.WriteByte('\n')
		}
		return b.String()
	}

	header := make([]string, len(columns))
	widths := make([]int, len(columns))
	for i, c := range columns {
		header[i] = c.name
		widths[i] = draw.TextWidth(c.name)
		for _, row := range rows {
			widths[i] = max(widths[i], draw.TextWidth(field(row[i])))
		}
	}
	total := -tableGap
	for _, i := range shown {
		total += widths[i] + tableGap
	}
	for n := len(shown) - 1; n >= 0 && total > width && !wide; n-- {
		if i := shown[n]; !columns[i].keep {
			total -= widths[i] + tableGap
			shown = append(shown[:n], shown[n+1:]...)
		}
	}
	for _, row := range append([][]string{header}, rows...) {
		line := ""
		for n, i := range shown {
			text := field(row[i])
			space := strings.Repeat(" ", widths[i]-draw.TextWidth(text))
			if columns[i].right {
				text, space = space+text, ""
			}
			if n > 0 {
				line += strings.Repeat(" ", tableGap)
			}
			line += text + space
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// field returns a text as one field of a table: printable, with U+FFFD in place of tabs and line feeds.
func field(s string) string {
	return strings.NewReplacer("\t", "\uFFFD", "\n", "\uFFFD").Replace(printable(s))
}

// ago formats how long before now a time was. From 30 days on it returns the date.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < -time.Minute: // probably the clock of an agent is fast
		return t.UTC().Format("2006-01-02 15:04")
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	case d < 30*24*time.Hour:
		return fmt.Sprintf("%d days ago", d/(24*time.Hour))
	default:
		return t.UTC().Format(time.DateOnly)
	}
}

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/skeinhq/skein/pkg/lineage/draw"
)

// column is a column of a table. Those that do not fit on a screen are left out, the last one first.
type column struct {
	name string
	// keep is a column that is never left out.
	keep bool
	// wide is a column that only wide tables have.
	wide bool
	// right aligns numbers.
	right bool
}

// tableGap stands between columns.
const tableGap = 2

// table draws rows for a screen of so many columns, with a header; fields are never cut. Width 0 is no screen: fields are
// separated by tabs, without a header. A wide table has all columns, on any screen.
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

// field returns a text as one field of a table: printable, with tabs and line feeds marked as what cannot be shown.
func field(s string) string {
	return strings.NewReplacer("\t", "\uFFFD", "\n", "\uFFFD").Replace(printable(s))
}

// ago writes how long before now a time was; one that lies a month or more before is a date.
func ago(now, t time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "-"
	case d < -time.Minute: // the clock of an agent, mostly
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

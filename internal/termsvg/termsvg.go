// Package termsvg draws what a program wrote to a terminal as an SVG picture, for documents.
package termsvg

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
)

// The measures of the picture, in pixels.
const (
	cellWidth  = 8.4
	cellHeight = 18
	margin     = 16
)

// style is how a cell looks: an SGR colour (30 to 37, 90 to 97; 0 is the terminal's), bold, dim.
type style struct {
	colour    int
	bold, dim bool
}

// Row is what one line of a terminal shows.
type Row []cell

type cell struct {
	r rune
	style
}

var colours = map[int]string{
	0: "#d6dae2", 30: "#6b7280", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79b8ff", 35: "#d2a8ff", 36: "#56d4dd", 37: "#f0f3f6",
	90: "#8b949e", 91: "#ffa198", 92: "#aff5b4", 93: "#f2cc60", 94: "#a5d6ff", 95: "#e2c5ff", 96: "#b3f0ff", 97: "#ffffff",
}

// strokes are the characters that are drawn as lines, so that they meet whatever the font is: the edges that each goes to.
var strokes = map[rune]string{'│': "ud", '─': "lr", '╮': "ld", '╭': "rd", '╯': "lu", '╰': "ru", '┬': "lrd", '┴': "lru", '├': "udr", '┤': "udl", '┼': "udlr"}

// Screen returns what a terminal of so many columns shows of an output, longer lines wrapped. It knows carriage returns, erasing to the end of the line (CSI K) and
// colours (CSI m); any other escape sequence is an error.
func Screen(output string, columns int) ([]Row, error) {
	rows, row, now := []Row{}, Row(nil), style{}
	column := 0
	for rest := output; rest != ""; {
		if strings.HasPrefix(rest, "\x1b[") {
			end := strings.IndexFunc(rest[2:], func(r rune) bool { return r >= '@' && r <= '~' })
			if end < 0 {
				return nil, errors.New("reading terminal output: an escape sequence has no end")
			}
			arguments, final := rest[2:2+end], rest[2+end]
			rest = rest[3+end:]
			switch {
			case final == 'm':
				now = now.after(arguments)
			case final == 'K' && (arguments == "" || arguments == "0"):
				row = row[:min(column, len(row))]
			default:
				return nil, fmt.Errorf("reading terminal output: escape sequence %q is not known", "CSI "+arguments+string(final))
			}
			continue
		}
		r := []rune(rest[:min(4, len(rest))])[0]
		rest = rest[len(string(r)):]
		switch {
		case r == '\n':
			rows, row, column = append(rows, row), nil, 0
		case r == '\r':
			column = 0
		case r < ' ':
			return nil, fmt.Errorf("reading terminal output: control character %q is not known", r)
		default:
			if column == columns {
				rows, row, column = append(rows, row), nil, 0
			}
			for len(row) <= column {
				row = append(row, cell{r: ' '})
			}
			row[column] = cell{r, now}
			column++
		}
	}
	if len(row) > 0 {
		rows = append(rows, row)
	}
	return rows, nil
}

func (s style) after(sgr string) style {
	for part := range strings.SplitSeq(sgr, ";") {
		switch n, _ := strconv.Atoi(part); {
		case n == 0:
			s = style{}
		case n == 1:
			s.bold = true
		case n == 2:
			s.dim = true
		case n == 22:
			s.bold, s.dim = false, false
		case n == 39:
			s.colour = 0
		case colours[n] != "":
			s.colour = n
		}
	}
	return s
}

// Text returns a row's characters.
func Text(row Row) string {
	var b strings.Builder
	for _, c := range row {
		b.WriteRune(c.r)
	}
	return b.String()
}

// Write draws rows on a screen of so many columns. Title is for those who do not see the picture.
func Write(w io.Writer, rows []Row, columns int, title string) error {
	var b bytes.Buffer
	width, height := float64(columns)*cellWidth+2*margin, len(rows)*cellHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="%s">`+"\n", width, height, width, height, html.EscapeString(title))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#14171c"/>`+"\n"+
		`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14">`+"\n")
	for y, row := range rows {
		for x := 0; x < len(row); {
			end := x + 1
			for _, line := strokes[row[x].r]; end < len(row) && row[end].style == row[x].style; end++ {
				if _, other := strokes[row[end].r]; other || line {
					break
				}
			}
			draw(&b, row[x:end], margin+float64(x)*cellWidth, float64(margin+y*cellHeight))
			x = end
		}
	}
	b.WriteString("</g>\n</svg>\n")
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("writing picture: %w", err)
	}
	return nil
}

// draw writes cells of one style, whose upper left corner is at x and y: one line, or a text.
func draw(b *bytes.Buffer, cells Row, x, y float64) {
	text := Text(cells)
	if strings.TrimSpace(text) == "" {
		return
	}
	look := ""
	if cells[0].dim {
		look += ` opacity=".62"`
	}
	colour, edges := colours[cells[0].colour], strokes[cells[0].r]
	if edges == "" {
		if cells[0].bold {
			look += ` font-weight="bold"`
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" textLength="%.1f" fill="%s"%s>%s</text>`+"\n", x, y+13, float64(len(cells))*cellWidth, colour, look, strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0")) // SVG shows no other spaces at a text's ends
		return
	}
	cx, cy := x+cellWidth/2, y+cellHeight/2
	points := map[rune][2]float64{'u': {cx, y}, 'd': {cx, y + cellHeight}, 'l': {x, cy}, 'r': {x + cellWidth, cy}}
	var path strings.Builder
	if a, z := points[rune(edges[0])], points[rune(edges[1])]; len(edges) == 2 {
		fmt.Fprintf(&path, "M%.1f %.1fQ%.1f %.1f %.1f %.1f", a[0], a[1], cx, cy, z[0], z[1])
	} else {
		for _, e := range edges {
			fmt.Fprintf(&path, "M%.1f %.1fL%.1f %.1f", cx, cy, points[e][0], points[e][1])
		}
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>`+"\n", path.String(), colour, look)
}

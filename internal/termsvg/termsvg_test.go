package termsvg

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestScreen_IsWhatATerminalShows(t *testing.T) {
	rows, err := Screen("one\r\n\x1b[1mold text\x1b[0m\rnew\x1b[K\r\n\x1b[2;31m●─╮\x1b[0m <a&b>twelve", 12)
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"one", "new", "●─╮ <a&b>twe", "lve"} {
		if got := Text(rows[n]); got != want {
			t.Errorf("row %d is %q, want %q", n, got, want)
		}
	}
	if got := rows[2][0].style; got != (style{colour: 31, dim: true}) {
		t.Errorf("the style of the node is %+v", got)
	}
	var b strings.Builder
	if err := Write(&b, rows, 12, `"title"`); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`fill="#ff7b72" opacity=".62">●</text>`, ">\u00a0&lt;a&amp;b&gt;twe</text>", `<path d="M24.4 `, `aria-label="&#34;title&#34;"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture lacks %s:\n%s", want, b.String())
		}
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"\x1b[2J", "\x1b[", "a\tb"} {
		if _, err := Screen(bad, 80); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

package record

import (
	"testing"
	"time"
)

func TestParseRange_SplitsWhatHoldsColonsItself(t *testing.T) {
	for text, want := range map[string]string{
		"3:1024":                           "3:1024:",
		"3:1024:":                          "3:1024:",
		"3:1024:3:2048":                    "3:1024:3:2048",
		":3:2048":                          ":3:2048",
		":":                                ":",
		"start:end":                        "start:end",
		"start":                            "start:",
		"end:":                             "end:",
		"@2026-09-17T12:00:00Z":            "@2026-09-17T12:00:00Z:",
		"2026-09-17T12:00:00Z:":            "@2026-09-17T12:00:00Z:",
		":@2026-09-17T12:00:00Z":           ":@2026-09-17T12:00:00Z",
		"3:1:@2026-09-17T12:00:00.5+02:00": "3:1:@2026-09-17T12:00:00.5+02:00",
		"@2026-09-17T12:00:00+02:00:@2026-09-17T12:00:00-02:00": "@2026-09-17T12:00:00+02:00:@2026-09-17T12:00:00-02:00",
		"@2026-09-17T12:00:00Z:3:1":                             "@2026-09-17T12:00:00Z:3:1",
	} {
		r, err := ParseRange(text)
		if err != nil || r.String() != want {
			t.Errorf("%s is read as %s (%v), want %s", text, r, err, want)
		}
		if again, err := ParseRange(r.String()); err != nil || again.String() != want {
			t.Errorf("what is written as %s is read as %s (%v)", want, again, err)
		}
	}
	for _, text := range []string{"", "3", "3:", "a:b", "3:1024:3", "3:1024:4:2048", "3:1024:3:1024", "3:1024:3:1", "start:start", "end:start",
		"@2026-09-17T12:00:00Z:@2026-09-17T12:00:00Z", "@2026-09-17", "-1:3", "start:end:end", "3:1024:3:2048:3:4096"} {
		if r, err := ParseRange(text); err == nil {
			t.Errorf("%q is read as %s", text, r)
		}
	}
}

func TestParsePoint_ReadsWhatItWrites(t *testing.T) {
	at := time.Date(2026, 9, 17, 12, 0, 0, 0, time.UTC)
	for _, p := range []Point{{Position: &Position{3, 1024}}, {At: at}, {Start: true}, {End: true}} {
		got, err := ParsePoint(p.String())
		if err != nil || got.String() != p.String() {
			t.Errorf("%s is read as %s (%v)", p, got, err)
		}
	}
	if !(Point{}).IsZero() || (Point{End: true}).IsZero() {
		t.Error("the zero point is not told from others")
	}
	if _, err := ParsePoint(""); err == nil {
		t.Error("no text is a point")
	}
}

func FuzzParseRange(f *testing.F) {
	f.Add("3:1024:@2026-09-17T12:00:00Z")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			return
		}
		if again, err := ParseRange(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%q gives %s, and that %s (%v)", s, r, again, err)
		}
	})
}

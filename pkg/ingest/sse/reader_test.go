package sse

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// took is what a reader has made of a stream.
type took struct {
	raw    []string
	events []string
	over   int
	rest   Piece
	err    error
}

func readAll(t testing.TB, r io.Reader, limit int, acquire func(int) bool, release func(int)) took {
	t.Helper()
	rd := NewReader(r, limit, acquire, release)
	defer rd.Close()
	var out took
	for {
		p, err := rd.Next()
		if err != nil {
			rest := rd.Rest()
			out.rest = Piece{Raw: bytes.Clone(rest.Raw), Data: bytes.Clone(rest.Data), Partial: rest.Partial}
			out.err = err
			return out
		}
		if len(p.Raw) == 0 {
			t.Fatal("an empty piece")
		}
		out.raw = append(out.raw, string(p.Raw))
		if p.Data != nil {
			out.events = append(out.events, string(p.Data))
		}
		if p.Over {
			out.over++
		}
	}
}

func (o took) stream() string { return strings.Join(o.raw, "") + string(o.rest.Raw) }

var long = strings.Repeat("x", 40<<10)

var streams = map[string]struct {
	stream string
	events []string
	rest   string // data
	over   int
}{
	"one":                  {"data: {}\n\n", []string{"{}"}, "", 0},
	"no space":             {"data:{}\n\n", []string{"{}"}, "", 0},
	"two":                  {"data: 1\n\ndata: 2\n\n", []string{"1", "2"}, "", 0},
	"CRLF":                 {"data: 1\r\n\r\ndata: 2\r\n\r\n", []string{"1", "2"}, "", 0},
	"CR":                   {"data: 1\r\rdata: 2\r\r", []string{"1", "2"}, "", 0},
	"mixed ends":           {"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\n\r", []string{"1", "2", "3"}, "", 0},
	"several lines":        {"data: a\ndata: b\ndata\ndata: c\n\n", []string{"a\nb\n\nc"}, "", 0},
	"other fields":         {"event: x\nid: 7\nretry: 9\ndata: 1\n\n", []string{"1"}, "", 0},
	"comments":             {": ping\n\n: ping\ndata: 1\n: in it\ndata: 2\n\n:\n", []string{"1\n2"}, "", 0},
	"no data":              {"event: x\n\ndata:\n\ndata\n\ndata: 1\n\n", []string{"1"}, "", 0},
	"a field of that name": {"datax: 1\n\n data: 2\n\n", nil, "", 0},
	"empty lines":          {"\n\n\r\n\ndata: 1\n\n\n\n", []string{"1"}, "", 0},
	"byte order mark":      {"\xef\xbb\xbfdata: 1\n\n\xef\xbb\xbfdata: 2\n\n", []string{"1"}, "", 0},
	"unfinished":           {"data: 1\n\ndata: 2\n", []string{"1"}, "2", 0},
	"unfinished line":      {"data: 1\n\ndata: 2", []string{"1"}, "2", 0},
	"unfinished comment":   {"data: 1\n\n: 2", []string{"1"}, "", 0},
	"large":                {"data: " + long + "\n\ndata: 2\n\n", []string{long, "2"}, "", 0},
	"over":                 {"data: 1\n\ndata: " + long + long + "\n\ndata: 2\n\n", []string{"1", "2"}, "", 1},
	"over in lines":        {"data: 1\n\n" + strings.Repeat("data: "+long+"\n", 3) + "\ndata: 2\n\n", []string{"1", "2"}, "", 1},
	"over, unfinished":     {"data: 1\n\ndata: " + long + long, []string{"1"}, "", 0},
	"a comment over it":    {": " + long + long + "\n\ndata: 2\n\n", []string{"2"}, "", 0},
	"over behind comment":  {": " + long + long + "\ndata: 2\n\ndata: 3\n\n", []string{"3"}, "", 1},
	"empty":                {"", nil, "", 0},
}

const limit = 64 << 10

func TestReader_TakesStreamsApartWithoutChangingThem(t *testing.T) {
	for name, c := range streams {
		for how, r := range map[string]io.Reader{
			"whole":       strings.NewReader(c.stream),
			"by the byte": iotest.OneByteReader(strings.NewReader(c.stream)),
			"with EOF":    iotest.DataErrReader(strings.NewReader(c.stream)),
		} {
			got := readAll(t, r, limit, nil, nil)
			if got.stream() != c.stream {
				t.Errorf("%s, %s: the bytes changed: %.200q", name, how, got.stream())
			}
			if !slices.Equal(got.events, c.events) || string(got.rest.Data) != c.rest || got.over != c.over || !errors.Is(got.err, io.EOF) {
				t.Errorf("%s, %s: %.100q, rest %q, %d over, %v; want %.100q, rest %q, %d over", name, how, got.events, got.rest.Data, got.over, got.err, c.events, c.rest, c.over)
			}
		}
	}
}

// A piece that is not Partial ends where an event or a comment does: what was sent on can be followed by
// an event of one's own.
func TestReader_HandsOutNoHalfOfAnEventThatFits(t *testing.T) {
	for name, c := range streams {
		got := readAll(t, iotest.HalfReader(strings.NewReader(c.stream)), 1<<20, nil, nil)
		for _, raw := range got.raw {
			if !strings.HasSuffix(raw, "\n") && !strings.HasSuffix(raw, "\r") {
				t.Errorf("%s: a piece ends with %.20q", name, raw[max(0, len(raw)-20):])
			}
		}
	}
}

func TestReader_CutEndsWithoutAnEvent(t *testing.T) {
	cut := errors.New("cut")
	got := readAll(t, io.MultiReader(strings.NewReader("data: 1\n\ndata: {\"a\":1}"), iotest.ErrReader(cut)), limit, nil, nil)
	if !errors.Is(got.err, cut) || got.rest.Data != nil || len(got.events) != 1 {
		t.Errorf("got %+v", got)
	}
}

// What the reader holds beyond a small buffer was given to it, and is given back.
func TestReader_AsksForTheMemoryItHolds(t *testing.T) {
	var held, most int
	acquire := func(n int) bool { held += n; most = max(most, held); return true }
	release := func(n int) { held -= n }
	body := strings.Repeat("data: "+long+"\n\ndata: 1\n\n", 3)
	got := readAll(t, strings.NewReader(body), limit, acquire, release)
	if len(got.events) != 6 || held != 0 || most == 0 || most > 4*limit {
		t.Errorf("%d events, %d bytes held, %d at most", len(got.events), held, most)
	}
	// Without memory the event goes by.
	got = readAll(t, strings.NewReader(body), limit, func(int) bool { return false }, release)
	if got.stream() != body || got.over != 3 || len(got.events) != 3 || held != 0 {
		t.Errorf("%d events, %d over, %d bytes held", len(got.events), got.over, held)
	}
}

// A stream of any length and any event needs a bounded buffer.
func TestReader_HoldsNoMoreThanAnEvent(t *testing.T) {
	r := NewReader(io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, 100<<20), strings.NewReader("\n\ndata: 1\n\n")), limit, nil, nil)
	var n, over int
	var last string
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if n += len(p.Raw); p.Over {
			over++
		}
		last = string(p.Data)
		if cap(r.buf) > 2*limit {
			t.Fatalf("the buffer has %d bytes", cap(r.buf))
		}
	}
	if want := 100<<20 + len("data: \n\ndata: 1\n\n"); n != want || over != 1 || last != "1" {
		t.Errorf("%d bytes, want %d; %d over, last %q", n, want, over, last)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// Invariants: the bytes stay as they are, and how they are split into reads changes no event.
func FuzzReader(f *testing.F) {
	for _, c := range streams {
		if len(c.stream) < 1000 {
			f.Add([]byte(c.stream), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		whole := readAll(t, bytes.NewReader(stream), 100, nil, nil)
		split := readAll(t, &random{stream, rnd}, 100, nil, nil)
		for _, got := range []took{whole, split} {
			if got.stream() != string(stream) {
				t.Fatalf("%q became %q", stream, got.stream())
			}
		}
		if !slices.Equal(whole.events, split.events) || whole.over != split.over || string(whole.rest.Data) != string(split.rest.Data) {
			t.Fatalf("%q: whole %q %d %q, split %q %d %q", stream, whole.events, whole.over, whole.rest.Data, split.events, split.over, split.rest.Data)
		}
	})
}

// random reads as many bytes at a time as it likes.
type random struct {
	b   []byte
	rnd *rand.Rand
}

func (r *random) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+r.rnd.IntN(4))], r.b)
	r.b = r.b[n:]
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	stream := []byte(strings.Repeat("data: {\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"m1\",\"delta\":\""+strings.Repeat("y", 120)+"\"}\n\n", 1000))
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r := NewReader(bytes.NewReader(stream), limit, nil, nil)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		r.Close()
	}
}

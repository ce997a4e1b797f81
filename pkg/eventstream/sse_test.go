package eventstream

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

// item is an event: its data, or the head of one that was over the limit.
type item struct {
	over bool
	data string
}

// took is what a reader has made of a stream.
type took struct {
	raw    []string
	events []string
	over   int
	noRoom int
	items  []item
	rest   Piece
	err    error
}

func readAll(t testing.TB, r io.Reader, limit int) took {
	t.Helper()
	return readWith(t, NewSSE(r, limit, Memory{}))
}

// small is a reader with a buffer of 16 bytes.
func small(r io.Reader, limit int, acquire func(int64) error) *SSE {
	return newSSE(newBuffer(r, limit, 16, Memory{acquire, func(int64) {}}))
}

func readWith(t testing.TB, rd *SSE) took {
	t.Helper()
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
			out.items = append(out.items, item{false, string(p.Data)})
		}
		if p.Over {
			out.over++
			out.items = append(out.items, item{true, string(p.Head)})
			if p.Err != nil {
				out.noRoom++
			}
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
	"a late mark":          {"\n\xef\xbb\xbfdata: 1\n\ndata: 2\n\n", []string{"2"}, "", 0},
	"a mark alone":         {"\xef\xbb\xbf\ndata: 1\n\n", []string{"1"}, "", 0},
	"no data over it":      {"id: " + long + long + "\ndx: 1\ndata:\n\ndata: 2\n\n", []string{"2"}, "", 0},
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

func TestSSE_TakesStreamsApartWithoutChangingThem(t *testing.T) {
	for name, c := range streams {
		for how, r := range map[string]io.Reader{
			"whole":       strings.NewReader(c.stream),
			"by the byte": iotest.OneByteReader(strings.NewReader(c.stream)),
			"with EOF":    iotest.DataErrReader(strings.NewReader(c.stream)),
		} {
			got := readAll(t, r, limit)
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
func TestSSE_HandsOutNoHalfOfAnEventThatFits(t *testing.T) {
	for name, c := range streams {
		got := readAll(t, iotest.HalfReader(strings.NewReader(c.stream)), 1<<20)
		for _, raw := range got.raw {
			if !strings.HasSuffix(raw, "\n") && !strings.HasSuffix(raw, "\r") {
				t.Errorf("%s: a piece ends with %.20q", name, raw[max(0, len(raw)-20):])
			}
		}
	}
}

func TestSSE_CutEndsWithoutAnEvent(t *testing.T) {
	cut := errors.New("cut")
	got := readAll(t, io.MultiReader(strings.NewReader("data: 1\n\ndata: {\"a\":1}"), iotest.ErrReader(cut)), limit)
	if !errors.Is(got.err, cut) || got.rest.Data != nil || len(got.events) != 1 {
		t.Errorf("got %+v", got)
	}
}

// What the reader holds beyond a small buffer was given to it, and is given back.
func TestSSE_AsksForTheMemoryItHolds(t *testing.T) {
	var held, most int64
	memory := Memory{func(n int64) error { held += n; most = max(most, held); return nil }, func(n int64) { held -= n }}
	body := strings.Repeat("data: "+long+"\n\ndata: 1\n\n", 3)
	got := readWith(t, NewSSE(strings.NewReader(body), limit, memory))
	if len(got.events) != 6 || held != 0 || most == 0 || most > 4*limit {
		t.Errorf("%d events, %d bytes held, %d at most", len(got.events), held, most)
	}
	// Without memory the event goes by.
	memory.Acquire = func(int64) error { return errors.New("full") }
	got = readWith(t, NewSSE(strings.NewReader(body), limit, memory))
	if got.stream() != body || got.over != 3 || got.noRoom != 3 || len(got.events) != 3 || held != 0 {
		t.Errorf("%d events, %d over, %d bytes held", len(got.events), got.over, held)
	}
}

// A stream of any length and any event needs a bounded buffer.
func TestSSE_HoldsNoMoreThanAnEvent(t *testing.T) {
	r := NewSSE(io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeros{}, 100<<20), strings.NewReader("\n\ndata: 1\n\n")), limit,
		Memory{})
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

// Of an event that is over the limit the first bytes stay, however it comes.
func TestSSE_KeepsTheHeadOfAnEventThatIsOver(t *testing.T) {
	for name, c := range map[string]struct{ stream, head string }{
		"one line":           {"data: {\"type\":1" + long + long, `{"type":1` + long[:HeadBytes-9]},
		"lines":              {"id: 1\ndata: {\ndata\ndata: " + long + long, "{\n\n" + long[:HeadBytes-3]},
		"behind a comment":   {": " + long + long + "\ndata: {\ndata:}", "{\n}"},
		"behind a mark":      {"\xef\xbb\xbfdata: {" + long + long, "{" + long[:HeadBytes-1]},
		"a little too large": {"data: {" + long + long[:24<<10] + "\ndata: 1", "{" + long[:HeadBytes-1]},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(c.stream + "\n\n"),
			"by the byte": iotest.OneByteReader(strings.NewReader(c.stream + "\n\n"))} {
			got := readAll(t, r, limit)
			if len(got.items) != 1 || got.items[0] != (item{true, c.head}) || got.noRoom != 0 {
				t.Errorf("%s, %s: %.200v", name, how, got.items)
			}
		}
	}
}

// model takes a stream apart by the letter (WHATWG HTML, 9.2.6), and keeps the data of the event that the stream ends in.
// Empty data counts as no event.
func model(stream string) (events []string, rest string) {
	stream = strings.TrimPrefix(stream, "\xef\xbb\xbf")
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var data strings.Builder
	lines := strings.Split(stream, "\n")
	for i, line := range lines {
		switch name, value, _ := strings.Cut(line, ":"); {
		case line == "" && i == len(lines)-1: // the last line has no end
		case line == "":
			if data.Len() > 1 {
				events = append(events, strings.TrimSuffix(data.String(), "\n"))
			}
			data.Reset()
		case name == "data":
			data.WriteString(strings.TrimPrefix(value, " ") + "\n")
		}
	}
	if data.Len() > 1 {
		rest = strings.TrimSuffix(data.String(), "\n")
	}
	return events, rest
}

// Invariants: the bytes stay as they are, and the events are those of the model, however they are split into reads. Where there
// is memory for some events only, the others are over the limit, and their heads are the model's.
func FuzzSSE(f *testing.F) {
	for _, c := range streams {
		if len(c.stream) < 1000 {
			f.Add([]byte(c.stream), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		const limit = 100
		if len(stream) > frame {
			return // what stands round an event counts, too
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		always := func(int64) error { return nil }
		want, rest := model(string(stream))
		for how, rd := range map[string]*SSE{
			"whole": small(bytes.NewReader(stream), limit, always),
			"split": small(&random{stream, rnd}, limit, always),
			"short of memory": small(&random{stream, rnd}, limit, func(int64) error {
				if rnd.IntN(2) == 0 {
					return nil
				}
				return errors.New("full")
			}),
		} {
			got := readWith(t, rd)
			if got.stream() != string(stream) {
				t.Fatalf("%s: %q became %q", how, stream, got.stream())
			}
			if len(got.items) != len(want) {
				t.Fatalf("%s: %q: %v, want %q", how, stream, got.items, want)
			}
			noRoom := 0
			for i, is := range got.items {
				if is.data != want[i][:min(len(want[i]), HeadBytes)] && !(is.over && len(want[i]) > HeadBytes && strings.HasPrefix(want[i], is.data)) {
					t.Fatalf("%s: %q: event %d is %q, want %q", how, stream, i, is.data, want[i])
				}
				if is.over && len(want[i]) <= limit {
					noRoom++
				}
				if !is.over && len(want[i]) > limit {
					t.Fatalf("%s: %q: event %d is not over the limit", how, stream, i)
				}
			}
			switch {
			case how != "short of memory" && (noRoom > 0 || got.noRoom > 0):
				t.Fatalf("%s: %q: %d events are over the limit that are not", how, stream, noRoom)
			case noRoom > got.noRoom:
				t.Fatalf("%s: %q: of %d events without memory %d say so", how, stream, noRoom, got.noRoom)
			}
			if r := string(got.rest.Data); r != rest && !(r == "" && (got.rest.Partial || len(rest) > limit)) {
				t.Fatalf("%s: %q: the rest is %q, want %q", how, stream, r, rest)
			}
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

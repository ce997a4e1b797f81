package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFetchPool_HasRoomForWhatIsUnpacked(t *testing.T) {
	p := newFetchPool()
	for range 100 {
		p.unpacked(1000, 30_000)
	}
	b := p.GetDecompressBytes(make([]byte, 1000), kgo.CodecZstd)
	if cap(b) < 30_000 || cap(b) > 4*30_000 || len(b) != 0 {
		t.Errorf("for 30,000 bytes there are %d with room for %d", len(b), cap(b))
	}
	p.PutDecompressBytes(b[:1])
	if again := p.GetDecompressBytes(make([]byte, 800), kgo.CodecZstd); cap(again) != cap(b) || &again[:1][0] != &b[:1][0] {
		t.Errorf("for somewhat less there are %d bytes, not the %d that are kept", cap(again), cap(b))
	}
	for range 100 { // what comes now is packed less
		p.unpacked(1000, 2000)
	}
	if b := p.GetDecompressBytes(make([]byte, 1000), kgo.CodecZstd); cap(b) > 8000 {
		t.Errorf("for 2,000 bytes there are %d", cap(b))
	}
}

func TestFetchPool_KeepsNoMoreThanItMay(t *testing.T) {
	s := spare[byte]{most: 1000}
	for range 3 {
		s.put(make([]byte, 500))
	}
	s.put(nil)
	s.put(make([]byte, 1001))
	if s.held != 1000 {
		t.Errorf("%d bytes are kept, want 1000", s.held)
	}
	for _, n := range []int{0, 1, 3, 4, 5, 7, 8, 9, 100, 249, 1000, 1001} {
		if b := s.get(n); cap(b) < n || cap(b) > n+n/4+1 {
			t.Errorf("for %d bytes there are %d", n, cap(b))
		}
	}
	if b := s.get(400); cap(b) != 500 || s.held != 500 {
		t.Errorf("for 400 bytes there are %d, and %d are kept", cap(b), s.held)
	}
	if s.put(make([]byte, 800)); s.held != 800 { // in place of a smaller one
		t.Errorf("%d bytes are kept, want the larger slice's 800", s.held)
	}
}

func TestSpare_FindsWhatItHasMade(t *testing.T) {
	for n := range 5000 {
		s := spare[byte]{most: 1 << 20}
		one := s.get(n)
		s.put(one)
		if again := s.get(n); cap(one) > 0 && (s.held != 0 || cap(again) != cap(one)) {
			t.Fatalf("for %d bytes there are %d, in place of the %d that are kept", n, cap(again), cap(one))
		}
	}
}

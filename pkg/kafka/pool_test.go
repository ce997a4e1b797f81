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
	if s.held != 1000 {
		t.Errorf("%d bytes are kept, want 1000", s.held)
	}
	for range 3 {
		if b := s.get(100); cap(b) < 100 || cap(b) > 400 {
			t.Errorf("for 100 bytes there are %d", cap(b))
		}
	}
	if b := s.get(250); cap(b) != 500 || s.held != 500 {
		t.Errorf("for 250 bytes there are %d, and %d are kept", cap(b), s.held)
	}
	if b := s.get(0); cap(b) != 1 {
		t.Errorf("for nothing there are %d bytes", cap(b))
	}
}

package conns

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHeadBytes_CountsWhatIsMoreThanUsual(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/v1/threads/t/history", nil)
	for i := range 20 {
		r.Header.Set(fmt.Sprint("X-Field-", i), "a value of some length")
	}
	if n := HeadBytes(r); n != 0 {
		t.Errorf("a usual head counts %d bytes", n)
	}
	r.Header.Set("Cookie", strings.Repeat("x", 10_000))
	if n := HeadBytes(r); n < 8_000 || n > 10_000 {
		t.Errorf("with a value of 10,000 bytes it counts %d", n)
	}
	for range 100 {
		r.Header.Add("A", "")
	}
	if n := HeadBytes(r); n < 18_000 || n > 20_000 {
		t.Errorf("with 100 empty fields more it counts %d", n)
	}
}

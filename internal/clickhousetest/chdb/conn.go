//go:build linux && amd64

package chdb

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"
)

// conn is one session of the engine. All sessions of a process share one data folder. A session runs
// one statement at a time.
type conn struct {
	mu     sync.Mutex
	ptr    unsafe.Pointer // chdb_connection*
	handle unsafe.Pointer // chdb_connection
}

// result is what a statement gave.
type result struct {
	data                                           []byte
	rowsRead, bytesRead, rowsWritten, bytesWritten uint64
}

// connect starts the engine (the first call of a process) or opens a further session.
func connect(args ...string) (*conn, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	argv := make([]unsafe.Pointer, 0, len(args)+2)
	for _, a := range append([]string{"clickhouse"}, args...) {
		b := append([]byte(a), 0)
		pin.Pin(&b[0])
		argv = append(argv, unsafe.Pointer(&b[0]))
	}
	argv = append(argv, nil)
	pin.Pin(&argv[0])
	var p unsafe.Pointer
	keepSignals(func() { p = chdbConnect(int32(len(argv)-1), unsafe.Pointer(&argv[0])) })
	if p == nil {
		return nil, errors.New("connecting to the engine: the folder is in use, or a setting is wrong")
	}
	return &conn{ptr: p, handle: *(*unsafe.Pointer)(p)}, nil
}

func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	chdbClose(c.ptr)
}

// query runs one statement. Values of params are in TSV escapes, as ClickHouse's HTTP interface has
// them. Errors are the engine's own text.
func (c *conn) query(statement []byte, format string, params map[string]string) (*result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var pin runtime.Pinner
	defer pin.Unpin()
	q, f := pinned(&pin, statement), pinned(&pin, []byte(format))
	var r unsafe.Pointer
	if len(params) == 0 {
		r = chdbQuery(c.handle, q, uintptr(len(statement)), f, uintptr(len(format)))
	} else {
		var names, values []unsafe.Pointer
		var nameLens, valueLens []uintptr
		for name, value := range params {
			names = append(names, pinned(&pin, append([]byte(name), 0)))
			values = append(values, pinned(&pin, append([]byte(value), 0)))
			nameLens, valueLens = append(nameLens, uintptr(len(name))), append(valueLens, uintptr(len(value)))
		}
		pin.Pin(&names[0])
		pin.Pin(&values[0])
		pin.Pin(&nameLens[0])
		pin.Pin(&valueLens[0])
		r = chdbQueryParams(c.handle, q, uintptr(len(statement)), f, uintptr(len(format)),
			unsafe.Pointer(&names[0]), unsafe.Pointer(&nameLens[0]),
			unsafe.Pointer(&values[0]), unsafe.Pointer(&valueLens[0]), uintptr(len(names)))
	}
	if r == nil {
		return nil, errors.New("running a statement: the engine gave no result")
	}
	defer chdbDestroy(r)
	if e := cString(chdbError(r)); e != "" {
		return nil, errors.New(e)
	}
	out := &result{
		rowsRead: chdbRowsRead(r), bytesRead: chdbBytesRead(r),
		rowsWritten: chdbRowsWritten(r), bytesWritten: chdbBytesWritten(r),
	}
	if n := int(chdbLength(r)); n > 0 {
		out.data = append([]byte(nil), unsafe.Slice((*byte)(chdbBuffer(r)), n)...)
	}
	return out, nil
}

// pinned pins b and returns its address, or nil where b is empty.
func pinned(pin *runtime.Pinner, b []byte) unsafe.Pointer {
	if len(b) == 0 {
		return nil
	}
	pin.Pin(&b[0])
	return unsafe.Pointer(&b[0])
}

func cString(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

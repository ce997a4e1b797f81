//go:build linux && amd64

package chdb

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// The functions of libchdb's C interface that a Conn needs. They are bound once by load.
var (
	chdbConnect     func(argc int32, argv unsafe.Pointer) unsafe.Pointer // the connection's handle is *result
	chdbClose       func(conn unsafe.Pointer)
	chdbQuery       func(conn, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr) unsafe.Pointer
	chdbQueryParams func(conn, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr, names, nameLens, values,
		valueLens unsafe.Pointer, n uintptr) unsafe.Pointer
	chdbDestroy      func(result unsafe.Pointer)
	chdbBuffer       func(result unsafe.Pointer) unsafe.Pointer
	chdbLength       func(result unsafe.Pointer) uintptr
	chdbError        func(result unsafe.Pointer) unsafe.Pointer
	chdbRowsRead     func(result unsafe.Pointer) uint64
	chdbBytesRead    func(result unsafe.Pointer) uint64
	chdbRowsWritten  func(result unsafe.Pointer) uint64
	chdbBytesWritten func(result unsafe.Pointer) uint64
)

var (
	loadOnce sync.Once
	errLoad  error
)

// load opens the library at path. Only the first call of a process does, and its outcome stays.
func load(path string) error {
	loadOnce.Do(func() {
		h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			errLoad = fmt.Errorf("loading libchdb: %w", err)
			return
		}
		for name, fn := range map[string]any{
			"chdb_connect":              &chdbConnect,
			"chdb_close_conn":           &chdbClose,
			"chdb_query_n":              &chdbQuery,
			"chdb_query_with_params_n":  &chdbQueryParams,
			"chdb_destroy_query_result": &chdbDestroy,
			"chdb_result_buffer":        &chdbBuffer,
			"chdb_result_length":        &chdbLength,
			"chdb_result_error":         &chdbError,
			"chdb_result_rows_read":     &chdbRowsRead,
			"chdb_result_bytes_read":    &chdbBytesRead,
			"chdb_result_rows_written":  &chdbRowsWritten,
			"chdb_result_bytes_written": &chdbBytesWritten,
		} {
			purego.RegisterLibFunc(fn, h, name)
		}
	})
	return errLoad
}

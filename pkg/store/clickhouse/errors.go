package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/skeinhq/skein/pkg/store"
)

// Errors of the server that a retry may solve.
var (
	// ErrUnavailable means that the server does not answer, or cannot serve now (overloaded, read-only, shutting down).
	ErrUnavailable = errors.New("ClickHouse does not answer")
	// ErrDenied means that the user, the password or a grant is wrong.
	ErrDenied = errors.New("ClickHouse refuses the credentials")
	// ErrPassword means that the file with the password is missing or empty.
	ErrPassword = errors.New("reading the password of ClickHouse")
	// ErrSchemaOld means that the database or a part of its schema is missing, mostly because nobody has migrated it.
	ErrSchemaOld = errors.New("the ClickHouse schema does not fit this binary: " +
		"where it is older, run `skein migrate`; where it is newer, run a newer binary")
)

// errNoDatabase is ErrSchemaOld where there is nothing at all. The server's text behind it names the database.
const errNoDatabase = oldSchemaError("there is no such database: run `skein migrate` with the same --clickhouse flags, which makes it")

// oldSchemaError is an ErrSchemaOld with words of its own.
type oldSchemaError string

func (e oldSchemaError) Error() string { return string(e) }

func (oldSchemaError) Is(target error) bool { return target == ErrSchemaOld }

// codes maps the server's error codes to these errors (ClickHouse, src/Common/ErrorCodes.cpp).
var codes = map[int32]error{
	16:  ErrSchemaOld,   // NO_SUCH_COLUMN_IN_TABLE
	47:  ErrSchemaOld,   // UNKNOWN_IDENTIFIER
	60:  ErrSchemaOld,   // UNKNOWN_TABLE
	81:  errNoDatabase,  // UNKNOWN_DATABASE
	164: ErrDenied,      // READONLY
	192: ErrDenied,      // UNKNOWN_USER
	193: ErrDenied,      // WRONG_PASSWORD
	194: ErrDenied,      // REQUIRED_PASSWORD
	291: ErrDenied,      // DATABASE_ACCESS_DENIED
	497: ErrDenied,      // ACCESS_DENIED
	516: ErrDenied,      // AUTHENTICATION_FAILED
	3:   ErrUnavailable, // UNEXPECTED_END_OF_FILE
	159: ErrUnavailable, // TIMEOUT_EXCEEDED
	201: ErrUnavailable, // QUOTA_EXCEEDED
	202: ErrUnavailable, // TOO_MANY_SIMULTANEOUS_QUERIES
	203: ErrUnavailable, // NO_FREE_CONNECTION
	209: ErrUnavailable, // SOCKET_TIMEOUT
	210: ErrUnavailable, // NETWORK_ERROR
	236: ErrUnavailable, // ABORTED
	241: ErrUnavailable, // MEMORY_LIMIT_EXCEEDED
	242: ErrUnavailable, // TABLE_IS_READ_ONLY
	243: ErrUnavailable, // NOT_ENOUGH_SPACE
	252: ErrUnavailable, // TOO_MANY_PARTS
	279: ErrUnavailable, // ALL_CONNECTION_TRIES_FAILED
	285: ErrUnavailable, // TOO_FEW_LIVE_REPLICAS
	286: ErrUnavailable, // UNSATISFIED_QUORUM_FOR_PREVIOUS_WRITE
	319: ErrUnavailable, // UNKNOWN_STATUS_OF_INSERT
	394: ErrUnavailable, // QUERY_WAS_CANCELLED
	692: ErrUnavailable, // TOO_MANY_MUTATIONS
	999: ErrUnavailable, // KEEPER_EXCEPTION
}

// refusals are the server's error codes for an insert that fails because of its rows. After any other code a retry loses nothing.
var refusals = map[int32]bool{
	6:   true, // CANNOT_PARSE_TEXT
	38:  true, // CANNOT_PARSE_DATE
	41:  true, // CANNOT_PARSE_DATETIME
	53:  true, // TYPE_MISMATCH
	69:  true, // ARGUMENT_OUT_OF_BOUND
	70:  true, // CANNOT_CONVERT_TYPE
	72:  true, // CANNOT_PARSE_NUMBER
	117: true, // INCORRECT_DATA
	128: true, // TOO_LARGE_ARRAY_SIZE
	131: true, // TOO_LARGE_STRING_SIZE
	349: true, // CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
	395: true, // FUNCTION_THROW_IF_VALUE_IS_NON_ZERO, in a view that is filled by inserts
	469: true, // VIOLATED_CONSTRAINT
}

// explainInsert is explain for an insert.
func explainInsert(err error) error {
	var ex *ch.Exception
	if errors.As(err, &ex) && refusals[ex.Code] {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return explain(err)
}

// explain wraps an error of the server or the network with one of the errors above.
func explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrPassword) {
		return err
	}
	var ex *ch.Exception
	if errors.As(err, &ex) {
		if kind, ok := codes[ex.Code]; ok {
			return fmt.Errorf("%w: %w", kind, err)
		}
		return err
	}
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, ch.ErrAcquireConnTimeout) {
		return fmt.Errorf("%w: %w", ErrUnavailable, bare(err))
	}
	return err
}

// bare returns only the server's address and the cause of an HTTP error. It drops the driver's text and the URL, which contains
// the statement.
func bare(err error) error {
	var request *url.Error
	if !errors.As(err, &request) {
		return hinted(err)
	}
	u, bad := url.Parse(request.URL)
	if bad != nil || strings.Contains(request.Err.Error(), u.Host) {
		return hinted(request.Err)
	}
	return fmt.Errorf("%s: %w", u.Host, hinted(request.Err))
}

// errNoConnection replaces the driver's "acquire conn timeout", whose hint to allow more connections is mostly wrong: usually the
// server has accepted a connection and does not answer.
var errNoConnection = fmt.Errorf("no connection was free, or a new one not answered, within %v", dialTimeout)

func hinted(err error) error {
	if errors.Is(err, ch.ErrAcquireConnTimeout) {
		return errNoConnection
	}
	return err
}

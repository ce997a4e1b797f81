package compactor

import "errors"

// ErrFenced says that another process took over this instance's transactional or instance id.
// The process should exit, as the two would fence each other again and again. Brokers may report the same for a process that hung for
// longer than its transaction timeout (8 s); after a restart it resumes from what was committed.
var ErrFenced = errors.New("another process has this instance's ids, or this one hung inside a transaction")

package compactor

import "errors"

// ErrFenced is returned if another process took over this instance's transactional or instance id. The process should
// exit, as the two would fence each other repeatedly. Brokers may report the same for a process that hung for longer
// than its transaction timeout (8 s); after a restart it resumes from the committed offsets.
var ErrFenced = errors.New("another process has this instance's ids, or this one hung inside a transaction")

package compactor

import "errors"

// ErrFenced says that another process took over this instance's transactional or instance id.
// Going on would fight with it: the process should exit.
var ErrFenced = errors.New("another process has this instance's ids")

// errMissing says that a run is known but its record is not there: the store is damaged.
var errMissing = errors.New("a run's record is missing")

package compactor

import "errors"

// ErrFenced says that another process took over this instance's transactional or instance id.
// Going on would fight with it: the process should exit. Brokers may say the same of one that has stood still for
// longer than its transaction may last (8 s); started anew it goes on from what was committed.
var ErrFenced = errors.New("another process has this instance's ids, or this one stood still inside a transaction")

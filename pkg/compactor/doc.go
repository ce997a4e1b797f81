// Package compactor is the stage that folds skein.events into run records, branch snapshots and
// dead letters, exactly once. It is the only writer of the three derived topics.
//
// One transaction holds a round's outputs and the group's offsets. What is committed as the offset
// of a partition is C, the first event that an open run still needs from the log; its metadata
// carries P, the position up to which every decision is made. Between C and P events only rebuild
// open runs: nothing is decided, counted or written a second time. A position record on skein.runs
// tells readers how far that is (tell).
//
// The types, from the outside in:
//
//   - Service runs one session after another until its context ends or the process is fenced.
//   - session is one life of the group's client: one goroutine polls and commits, and has what was polled of
//     each partition folded beside the others'.
//   - partition is the state of one assigned partition: its threads, its open runs, C and P. It is
//     pure but for its local store: records and times come in as values, outputs go out as values.
//   - run is one run in memory; its record is made by build.
//   - localStore holds, for one partition, what committed records of skein.runs say, and nothing
//     else. Deleting its folder costs time and nothing more.
//
// A request to fold a thread again (refold) is answered by the same actor: it alone writes records.
//
// Bad data (a malformed event, a record on a wrong partition) becomes a dead letter and costs only
// itself. Bad weather (a broker away) ends the session, and with it everything that was not committed;
// the next session starts from what was. A disk that is full or fails ends the process, without waiting
// for its stores (disk): Pebble may hold on for ever to who writes, while the client's heartbeats go on.
package compactor

// Package chaos puts the compactor's promise to the test on a real Kafka of three nodes: compactors are
// killed, frozen beyond the session timeout, doubled, added and removed, brokers are killed, stopped and
// frozen, all under load; then every record is held to what was sent and to two more folds of the raw
// topic, one by the stage's own core, one by the reader of "skein refold". There is no code here that anything else uses; the tests are all
// of it.
//
//   - load writes interleaved runs of many threads and remembers what it wrote.
//   - fleet is the compactors, members, as processes; brokers the nodes of Kafka.
//   - fault is one thing done to them, with what was seen of them at that moment: it counts only where
//     a run was open or a transaction under way.
//   - check reads all topics at the end and says what is wrong.
//   - mutants are builds without one of the protections: the same faults must break them.
package chaos

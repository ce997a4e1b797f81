// Package live has the tests of live streams over all stages: readers that come at any moment, are cut anywhere and go on at
// any process end with what one holds that has seen everything.
package live

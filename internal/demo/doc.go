// Package demo plays recorded conversations of real agents through Skein's HTTP API. Most are
// played as they were recorded; three are continued the way people do it: a question is edited, an
// answer is made again, and another way is tried from an earlier point. None of those says what it
// continues: that Skein finds out is what the demo shows.
package demo

// Package recordings holds AG-UI streams of real agent frameworks: 69 runs in 46 threads, the
// bytes that the frameworks put on the wire and the inputs they were called with. The demo plays
// them; tests fold them and compare with the official client. README.md has their sources.
package recordings

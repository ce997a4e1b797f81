// Package sdks runs an agent through Skein's proxy with AG-UI's SDKs of other languages, and restores the thread with the same SDK, as
// docs/sdks.md tells. Each program is what a user writes: only the URL names Skein.
package sdks

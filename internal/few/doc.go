// Package few has a map for what is mostly few: a map of Go takes 256 bytes and more from its first entry on.
package few

// Package password reads passwords from files, as secrets are mounted.
package password

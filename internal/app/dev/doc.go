// Package dev runs all stages of Skein in one process on one folder: kfake as the broker, SQLite
// as the store, and the same stage code as in production. It is for trying, developing and
// testing; it has no authentication and therefore listens on loopback addresses only.
package dev

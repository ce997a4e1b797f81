// Package dev runs all stages of Skein in one process on one folder: kfake as the broker, SQLite
// as the store, and the same stage code as in production. It is for trying, developing and
// testing. Where it listens on other than loopback addresses, every request needs an API key that it makes.
package dev

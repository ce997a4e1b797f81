// Package dev runs all stages of Skein in one process on one folder, for trying, developing and testing: kfake as the broker,
// SQLite as the store, and the stage code of production. On addresses other than loopback, every request needs an API key, which
// it generates.
package dev

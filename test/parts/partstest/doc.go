// Package partstest skips tests that need a part which the machine has not, and notes what would bring it in.
package partstest

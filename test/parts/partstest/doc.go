// Package partstest skips tests that need a part which the machine lacks, and records what to install.
package partstest

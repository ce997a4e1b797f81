// Package share divides what a process has of something, such as slots or bytes of memory, among tenants.
package share

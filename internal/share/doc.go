// Package share divides a limited amount of something, such as slots or bytes of memory, among tenants.
package share

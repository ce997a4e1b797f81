// Package share divides a limited amount, such as slots or bytes of memory, among tenants.
package share

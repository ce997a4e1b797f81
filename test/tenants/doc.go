// Package tenants walks every route of every HTTP stage as somebody who must not get through.
package tenants

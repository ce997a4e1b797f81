package tenants

import (
	"path/filepath"
	"testing"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest"
	"github.com/skeinhq/skein/pkg/store/clickhouse"
	"github.com/skeinhq/skein/pkg/store/sqlite"
	"github.com/skeinhq/skein/test/site"
)

// partitions of the topics: threads of one name lie on several, as tenants differ.
const partitions = 3

// fakeEnds are those of "skein dev".
func fakeEnds(t *testing.T) (kafka.Config, site.Store) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "lineage.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	return kafkatest.Start(t, partitions), st
}

// realEnds are those of production.
func realEnds(t *testing.T) (kafka.Config, site.Store) {
	t.Helper()
	cluster, server := kafkatest.Real(t, 1), clickhousetest.Start(t)
	st, err := clickhouse.New(clickhouse.Options{
		Addrs: []string{server.Addr}, Database: server.Database, Username: server.Username, Password: server.Password,
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster.MakeTopics(partitions)
	return cluster.Config, st
}

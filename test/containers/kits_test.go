package containers

import (
	"strings"
	"testing"

	"github.com/skeinhq/skein/internal/clickhousetest"
	"github.com/skeinhq/skein/pkg/kafka/kafkatest/apache"
)

// The tests' own containers, of Kafka (one node, one that is killed, three) and of ClickHouse: the kits take other parts where there is no
// engine, and say what they took.
func TestKits_StartContainers(t *testing.T) {
	if !*long {
		t.Skip("make test-containers runs this")
	}
	needEngine(t)
	needImages(t, "apache/kafka:"+apache.Tested, clickhousetest.Image)
	for _, kit := range []struct{ folder, tests, says string }{
		{"pkg/kafka/kafkatest", "TestReal_", "Apache Kafka in Docker"},
		{"pkg/ingest", "TestProxy_RealKafkaIsKilledUnderLoad", "Apache Kafka in Docker"},
		{"test/e2e", "TestPipeline_GivesBackWhatTheOfficialClientHolds", "Apache Kafka in Docker"},
		{"internal/clickhousetest", "TestStart_GivesEachTestADatabaseOfItsOwn", "Docker clickhouse/clickhouse-server"},
		{"pkg/store/clickhouse", "TestStore_FulfilsTheContract", "Docker clickhouse/clickhouse-server"},
	} {
		step(kit.folder+": "+kit.tests+" on containers", func() {
			out, err := try(nil, "go", "test", "-v", "-count=1", "-run", kit.tests, root+"/"+kit.folder)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, kit.says) || !strings.Contains(out, "--- PASS") {
				t.Errorf("it did not take containers:\n%s", out)
			}
		})
	}
}

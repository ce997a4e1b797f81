package apache

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"os"
	"strings"

	"github.com/skeinhq/skein/test/parts"
)

// Version is the version of Apache Kafka in pom.xml, which tests run.
const Version = "4.3.1"

// Tested is Version, unless SKEIN_TEST_KAFKA names another one that has a file of checksums here.
var Tested = cmp.Or(os.Getenv("SKEIN_TEST_KAFKA"), Version)

// log4j1 adds what Kafka 3 logs through, beside slf4j.
const log4j1 = `log4j-slf4j-impl</artifactId>
      <version>${log4j.version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-1.2-api</artifactId>`

var (
	//go:embed pom.xml
	pom []byte
	//go:embed jars-*.sha256
	checksums embed.FS
)

// Jars returns the folder with the broker's jars. It fetches missing jars.
func Jars(ctx context.Context) (string, error) {
	sums, err := checksums.ReadFile("jars-" + Tested + ".sha256")
	if err != nil {
		return "", fmt.Errorf("starting Kafka %s: its jars have no checksums: %w", Tested, err)
	}
	pom := bytes.Replace(pom, []byte(">"+Version+"<"), []byte(">"+Tested+"<"), 1)
	if strings.HasPrefix(Tested, "3.") {
		pom = bytes.Replace(pom, []byte("log4j-slf4j-impl</artifactId>"), []byte(log4j1), 1)
	}
	return parts.Jars{Name: "kafka-" + Tested, Pom: pom, SHA256: sums}.Folder(ctx)
}

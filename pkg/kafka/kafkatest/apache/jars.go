package apache

import (
	"context"
	_ "embed"

	"github.com/skeinhq/skein/test/parts"
)

// Version is the version of Apache Kafka that tests run.
const Version = "4.3.1"

var (
	//go:embed pom.xml
	pom []byte
	//go:embed jars.sha256
	checksums []byte
)

// Jars returns the folder with the broker's jars. It fetches missing jars.
func Jars(ctx context.Context) (string, error) {
	return parts.Jars{Name: "kafka-" + Version, Pom: pom, SHA256: checksums}.Folder(ctx)
}

package parts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// leastJava is the oldest Java version on which Apache Kafka 4 and its clients run.
const leastJava = 17

// Java returns the path of the Java that runs jars: that of JAVA_HOME, else the one on the path.
func Java(ctx context.Context) (string, error) {
	return javaTool(ctx, "java", "openjdk-17-jre-headless")
}

// Javac returns the path of the matching compiler.
func Javac(ctx context.Context) (string, error) {
	return javaTool(ctx, "javac", "openjdk-17-jdk-headless")
}

func javaTool(ctx context.Context, name, debian string) (string, error) {
	install := fmt.Sprintf("install Java %d or later, such as with apt-get install %s", leastJava, debian)
	if home := os.Getenv("JAVA_HOME"); home != "" {
		name = filepath.Join(home, "bin", name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &UnavailableError{Reason: name + " is not there", Install: install}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", &UnavailableError{Reason: fmt.Sprintf("%s does not run (%v)", path, err), Install: install}
	}
	if major := javaMajor(out); major < leastJava {
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return "", &UnavailableError{Reason: fmt.Sprintf("%s is too old (%s)", path, line), Install: install}
	}
	return path, nil
}

// javaMajor returns 17 for `openjdk version "17.0.15" 2025-04-15` and "javac 17.0.15", or 0 if there is no version.
// Java may print other lines before it, such as the options that it uses.
func javaMajor(out []byte) int {
	for _, before := range []string{`version "`, "javac "} {
		_, rest, ok := bytes.Cut(out, []byte(before))
		if !ok {
			continue
		}
		major := 0
		for _, c := range rest {
			if c < '0' || c > '9' {
				break
			}
			major = major*10 + int(c-'0')
		}
		return major
	}
	return 0
}

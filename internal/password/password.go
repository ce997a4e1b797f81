package password

import (
	"fmt"
	"os"
	"strings"
)

// Read returns the password that a file holds; a line end at its end is none of it. An empty file is an
// error: servers would be asked to take nobody. It is called for each connection, so that a secret that
// was rotated is seen.
func Read(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return password, nil
}

package clickhousetest

// release is the release of ClickHouse that tests prove. The engine's package and the server's image name
// it each in its own way, and cannot part.
const release = "26.7.3"

const (
	// Version is that of the server, which containers run, docker-compose.yml's with them.
	Version = release + ".19"
	// libraryVersion is that of the engine's package.
	libraryVersion = release + "-stable.1"
)

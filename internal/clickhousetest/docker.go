package clickhousetest

import (
	"context"
	"fmt"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/skeinhq/skein/test/parts"
)

// Image is the container that is started where Docker is at hand.
const Image = "clickhouse/clickhouse-server:" + Version

// The daemon must answer soon; an image may have to be pulled.
const (
	dockerProbe = 3 * time.Second
	dockerStart = 5 * time.Minute
)

// fromDocker starts a container. The daemon's reaper removes it when this process has ended.
func fromDocker() (Server, error) {
	if err := probeDocker(); err != nil {
		return Server{}, none("Docker is of no use (%v)", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), dockerStart)
	defer cancel()
	const user, password = "skein", "skein"
	c, err := testcontainers.GenericContainer(ctx, testcontainers.GenericContainerRequest{
		Started: true,
		ContainerRequest: testcontainers.ContainerRequest{
			Image:        Image,
			ExposedPorts: []string{"8123/tcp", "9000/tcp"},
			Env: map[string]string{
				"CLICKHOUSE_USER": user, "CLICKHOUSE_PASSWORD": password,
				"CLICKHOUSE_DEFAULT_ACCESS_MANAGEMENT": "1",
			},
			WaitingFor: wait.ForHTTP("/ping").WithPort("8123/tcp").WithStartupTimeout(dockerStart),
		},
	})
	if err != nil {
		return Server{}, fmt.Errorf("starting %s: %w", Image, err)
	}
	info, err := c.Inspect(ctx)
	if err != nil {
		return Server{}, fmt.Errorf("inspecting %s: %w", Image, err)
	}
	// Here the native protocol is spoken; the HTTP one is what the engine below is asked by, also in the stand-in of test/containers.
	scheme, port, part := "clickhouse", "9000/tcp", "Docker "+Image
	if info.Config.Labels["skein.stand-in"] == "http" {
		scheme, port, part = "http", "8123/tcp", part+" (a stand-in)"
	}
	host, err := c.PortEndpoint(ctx, port, scheme)
	if err != nil {
		return Server{}, fmt.Errorf("asking for the port of %s: %w", Image, err)
	}
	return Server{Addr: host, Username: user, Password: password, Part: part}, nil
}

func probeDocker() (err error) {
	// testcontainers panics where it finds no sign of Docker at all.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), dockerProbe)
	defer cancel()
	p, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer func() {
		if e := p.Close(); err == nil {
			err = e
		}
	}()
	if err := p.Health(ctx); err != nil {
		return err
	}
	return parts.Image(context.Background(), p.Client(), Image)
}

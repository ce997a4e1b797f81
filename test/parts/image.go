package parts

import (
	"context"
	"fmt"
	"time"

	"github.com/moby/moby/client"
)

// pullTimeout limits the pull of an image.
const pullTimeout = 5 * time.Minute

// Image pulls an image unless the Docker daemon has it. If the daemon cannot reach a registry, for example because of a
// firewall, the error is an *UnavailableError: the caller must do without a container of that image.
func Image(ctx context.Context, docker client.ImageAPIClient, name string) error {
	if _, err := docker.ImageInspect(ctx, name); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	pull, err := docker.ImagePull(ctx, name, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return &UnavailableError{Reason: fmt.Sprintf("Docker answers but cannot pull %s (%v)", name, err),
			Install: "load the image, or let the daemon reach its registry"}
	}
	return nil
}

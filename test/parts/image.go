package parts

import (
	"context"
	"fmt"
	"time"

	"github.com/moby/moby/client"
)

// pullTimeout bounds the pull of an image.
const pullTimeout = 5 * time.Minute

// Image sees to it that a Docker daemon has an image, and pulls it where it has not. A daemon that reaches no registry, as behind a
// firewall, is an *UnavailableError: it can start no container of that image, and another way has to be taken.
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

// Package deploy holds what Skein is deployed with, the Helm chart, and the tests that hold chart,
// docker-compose.yml and Dockerfile to their rules. It is a module of its own, so that Helm, Kubernetes
// and Compose are no dependencies of Skein.
package deploy

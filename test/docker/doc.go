// Package docker runs real container engines with csi-volmgr's volume plugin: Debian's dockerd,
// docker-compose and podman, in a private mount namespace, without a network, with an image made
// from busybox.
//
// A proxy between the engines and the plugin kills an engine or csi-volmgr before a request or
// after its answer, at each step of a volume's life.
//
// The tests have the build tag docker: make test-docker and .ci/run run them, make test does not.
package docker

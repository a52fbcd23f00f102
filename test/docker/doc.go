// Package docker runs real container engines on csi-volmgr's volume plugin: dockerd,
// docker-compose and podman of Debian, in a private mount namespace, without a network and
// with an image that is made of busybox.
//
// A proxy between the engines and the plugin kills an engine or csi-volmgr before a request
// or after its answer, so that each step of a life is tried.
//
// The tests are behind the build tag docker: make test-docker and .ci/run run them, make test
// does not.
package docker

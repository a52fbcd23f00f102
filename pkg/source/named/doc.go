// Package named provides the volumes that programs outside Kubernetes name: docker volume
// create, mount -t csi, Nomad's host volumes. Each becomes a claim, or names one, and one pod
// that uses it, so that the manager mounts it as it mounts any other.
//
// Owns: the row of each named volume (its options, and which uses of it are counted), which
// is durable in the journal; and when a named volume is wanted.
//
// Does not: decide anything about a mount, or speak a front end's protocol.
//
// A front end's word that a use has ended proves nothing: Docker and podman forget to say it,
// and say it too early. So the volume stays wanted while a use is counted, and after the last
// one until the kernel shows that no mount of it is left but csi-volmgr's own (next in use.go).
package named

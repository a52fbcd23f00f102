// Package named provides the volumes that programs outside Kubernetes refer to by name: docker
// volume create, mount -t csi, Nomad's host volumes. For each of them it creates or uses a claim,
// and creates one pod that uses the claim, so that the manager mounts the volume like any other.
//
// Owns: the row of each named volume (its options and its counted uses), which is durable in the
// journal, the keys of the objects that stand for it, and when a named volume is wanted.
//
// Does not: decide anything about a mount, or speak a front end's protocol.
//
// A front end's statement that a use has ended proves nothing: Docker and podman sometimes omit it
// and sometimes make it too early. So the volume stays wanted while a use is counted, and then
// until the kernel shows no mount of it but csi-volmgr's own (next in use.go).
package named

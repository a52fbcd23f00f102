// Package csistrict is a CSI driver for tests that is stricter than any real
// one: it judges each call by the rules that CSI 1.13 has for a container
// orchestrator (CO), refuses and records every breach, and keeps a transcript.
//
// It serves Identity, Controller, GroupController and Node with real mounts: bind mounts of
// directories, and loop devices for raw block volumes. It keeps its state in its
// state directory, so that it may be killed at any time. It may
// serve several nodes that share its storage, each at a socket of its own.
//
// A script makes it misbehave: fail with and without effect, wait,
// ignore that the caller gave up, lie, mount twice or elsewhere, crash,
// drop connections, answer garbage, change its abilities. The script
// is a file that the driver reads at each call; see [Script].
//
// Rules have the numbers of csi-volmgr's parity items; the comment at each rule
// says what CSI 1.13 requires.
package csistrict

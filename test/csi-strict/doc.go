// Package csistrict is a CSI driver for tests that is stricter than any real
// one: it judges each call by the rules that CSI 1.13 has for a container
// orchestrator (CO), refuses and records every breach, and keeps a transcript.
//
// It serves Identity, Controller, GroupController and Node with real mounts: bind mounts of
// directories, and loop devices for raw block volumes. What it knows of its
// volumes is in its state directory, so that it may be killed at any time. It may
// serve several nodes that share its storage, each at a socket of its own.
//
// A script tells it to misbehave: to fail with and without effect, to wait, to
// ignore that the caller gave up, to lie, to mount twice or elsewhere, to crash,
// to drop connections, to answer garbage, to change what it can do. The script
// is a file that is read at each call; see [Script].
//
// Rules are named by the numbers that the tests of csi-volmgr have for them; the
// comment at each says what CSI 1.13 wants.
package csistrict

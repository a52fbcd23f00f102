// Package manager is the VolumeManager: it mounts the volumes that the pods of a
// node want, unmounts those that they no longer want, and says of each volume why
// that is not done yet.
//
// Owns: the state of every volume (wishes, records, calls in flight), the order
// of journal, call and look at the kernel, start-up, waiting, and the snapshot
// that others read.
//
// Does not: decide (pkg/manager/plan does), or know Kubernetes, CSI or paths.
//
// Concurrency: one goroutine, [Manager.Run], owns all state. It has one row per
// volume, with the volume's record, the wishes for it and its call in flight. Other
// goroutines post events, which never blocks, and read copies from the snapshot. An
// event marks the volumes that it affects, and only those are planned; there is no
// ticker. A volume has at most one call in flight. Calls of different volumes wait
// for each other only because of the limits.
package manager

// Package node is a node's volume manager for programs that run pods themselves: what `csi-volmgr run`
// starts, in the program's own process.
//
// [New] takes the root directory and the journal, [Node.Run] runs the node until its context ends, and
// [Node.MountPod] and [Node.UnmountPod] give a pod its volumes and take them away. [Node.Manager] has the
// state of every volume and the reason why it waits.
//
// Owns: the names of these things, which later versions keep.
//
// Does not: decide or wire anything; internal/wire does.
//
// Concurrency: any goroutine may call the methods of a [Node].
package node

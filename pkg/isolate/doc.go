// Package isolate runs calls that may hang with their storage where they can be
// left behind: in helper processes.
//
// A thread that waits for dead storage cannot be killed, and a process that has
// one cannot end: its locks stay taken, and its successor cannot start.
// So the thread must be another process's. [Pool] is the side of the daemon,
// [Serve] that of a helper; what a call does is a [Handler], which the pool does
// not look into.
//
// Owns: the helpers, who of them is free, and which key each one works for.
//
// Does not: know mounts, kill (an unmount may be writing back data), or repeat.
//
// Concurrency: a Pool may be used by many goroutines; a helper has one call at a time.
package isolate

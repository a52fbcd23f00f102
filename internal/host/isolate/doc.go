// Package isolate runs calls that may hang with their storage in helper processes,
// which the daemon can leave behind.
//
// A thread that waits for dead storage cannot be killed, and a process with such a
// thread cannot exit: its locks stay taken, and its successor cannot start. So the
// thread must belong to another process. The daemon uses a [Pool], a helper runs
// [Serve], and a [Handler] makes the call. The pool does not interpret requests and
// replies.
//
// Owns: the helpers, which of them are free, and which key each works for.
//
// Does not: know mounts, kill helpers (an unmount may be writing back data), or retry.
//
// Concurrency: a Pool is safe for concurrent use; a helper runs one call at a time.
package isolate

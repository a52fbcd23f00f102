// Package payload puts a set of files into a directory so that a reader sees
// the old set or the new one, never a mixture and never neither.
//
// Owns: the ..data layout that pods know from the kubelet,
//
//	..2026_01_02_15_04_05.123456789/   the files, in a directory of their own
//	..data -> ..2026_…                 switched by one rename
//	<first path element> -> ..data/<first path element>
//
// and what a path in it may be.
//
// Does not: know where the files come from, or make the directory.
//
// Invariants: files have content, mode and group before they can be seen, and
// are durable before that; whatever fails, the last good set stays; a write of
// what is there already makes nothing new. A set that was replaced is kept for
// KeepTime, because a reader may have followed ..data just before it was
// switched: a process that opens a file of a set finds it, however often sets are
// written meanwhile. Whatever a pod puts into the directory, no symbolic
// link is followed and nothing outside the directory is touched (rule 8).
//
// Concurrency: one Write for one directory at a time; readers at any time.
package payload

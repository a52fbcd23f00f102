// Package payload writes a set of files into a directory so that a reader sees either
// the old set or the new one, never a mixture and never nothing.
//
// Owns: the ..data layout that pods know from the kubelet,
//
//	..2026_01_02_15_04_05.123456789/   the files, in a directory of their own
//	..data -> ..2026_…                 switched by one rename
//	<first path element> -> ..data/<first path element>
//
// and the rules for paths in it.
//
// Does not: know where the files come from, or make the directory.
//
// Invariants: files have content, mode and group, and are durable, before they become
// visible. If anything fails, the last good set stays. Writing a set that is there
// already creates nothing. A replaced set is kept for KeepTime, because a reader may
// have followed ..data just before the switch: such a process still finds the file that
// it opens, however often sets are written meanwhile. Whatever a pod puts into the
// directory, payload follows no symbolic link and touches nothing outside the directory
// (rule 8).
//
// Concurrency: one Write per directory at a time; readers at any time.
package payload

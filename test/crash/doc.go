// Package crash kills the real program at every place where it changes the
// host, and shows that the next run finishes what was begun and leaves nothing.
//
// The program under test is csi-volmgr with a failpoint before and after every
// statement that writes the journal, calls a driver, or makes, removes, renames,
// mounts or unmounts something. No line of it is in the source: the test finds
// the statements by their syntax and builds the program with an overlay, so the
// program that is shipped has no trace of it, and a new place is a new failpoint.
//
// docs/testing.md says how to run it.
package crash

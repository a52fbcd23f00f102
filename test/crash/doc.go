// Package crash kills the real program at every place where it changes the
// host, and shows that the next run finishes what was begun and leaves nothing.
//
// The program under test has the failpoints of package failpoint.
//
// docs/testing.md says how to run it.
package crash

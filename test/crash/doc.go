// Package crash kills the real program at every place where it changes the host, and checks
// that the next run finishes the work and leaves nothing behind.
//
// The program under test has the failpoints of package failpoint.
//
// docs/testing.md says how to run it.
package crash

// Package harness starts the real program for the suites that run it: test/e2e,
// test/faults, test/first, test/crash and test/vm. It builds programs, runs them in a private mount
// namespace until a test ends, kills and stops them, calls the API and the command
// line, waits for reports of the daemon, and finds leftovers on the host.
//
// A suite adds its own drivers and its own checks.
package harness

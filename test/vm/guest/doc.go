// Package guest has the tests that only the machine of package vm can run, on
// servers and devices that they set up themselves. Each payload is a machine of
// its own, so that they need not clean up what they set up.
package guest

// Package guest has the tests that only run in the machine of package vm, with
// servers and devices that they set up themselves. Each payload runs in its own
// machine, so they need not clean up.
package guest

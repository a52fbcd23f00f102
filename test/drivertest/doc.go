// Package drivertest tests that a built-in kind keeps the contract of a driver
// (manager.Driver): its verbs may be repeated, only Unpublish removes data, a failure
// changes nothing, and no name, link or mount leads a verb out of its volume.
package drivertest

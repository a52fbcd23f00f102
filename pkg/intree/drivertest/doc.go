// Package drivertest checks that a built-in kind keeps the contract of a driver
// (manager.Driver): that its verbs may be repeated, that nothing but Unpublish
// removes data, that a failure leaves things as they were, and that no name, link
// or mount leads a verb out of its volume.
package drivertest

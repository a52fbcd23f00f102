// Package drivertest checks that a built-in kind keeps the contract of a driver.
package drivertest

// Package door uses pkg from outside: a module whose path is not below this project's, so that Go forbids
// it our internal packages, builds the examples and a program of its own, and that program runs.
package door

// Package arch holds the rules of this tree that the compiler does not check:
// which room may import which, how large files and functions may be, which calls are
// forbidden in which room, and that documents agree with the tree.
//
// Each rule is a function of parsed source; the tests of this package apply
// all rules to the whole module.
package arch

// Package arch holds the rules of this tree that the compiler does not check:
// which room may import which, how large files and functions may be, what may
// not be called where, and that documents say what is there.
//
// Each rule is a function of parsed source; the tests of this package apply
// all of them to the whole module.
package arch

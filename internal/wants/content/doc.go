// Package content determines the files of a configMap, secret, downwardAPI or projected volume:
// their paths, modes and bytes.
//
// It is pure. Package resolve uses it to find out whether a volume is possible, and to compute the
// revision that says when to publish again; the built-in kinds use it to get the files to write. So
// both see the same files.
//
// Errors contain the names of objects, keys and fields, but never values: only [Files] contain a
// secret's value (rule 7).
package content

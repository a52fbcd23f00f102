// Package content says which files a volume of kind configMap, secret,
// downwardAPI or projected has: their paths, modes and bytes.
//
// It is pure. Package resolve asks it whether a volume can be made at all, and
// for the revision that says when to publish anew; the built-in kinds ask it
// for what to write. So both always mean the same files.
//
// Errors name objects, keys and fields, and never a value: a secret's value is
// nowhere but in [Files] (rule 7).
package content

// Package ui is the status page: pods, their volumes and the drivers of this
// node, what each waits for, and what happened since the page was opened.
//
// Owns: the page (one document with its script and style, no outside resource)
// and the stream of rows that feeds it.
//
// Does not: change anything, decide what is shown of a volume beyond picking
// fields of its status, or check who asks; what it shows is no more than the
// health port may tell anybody on the machine, and never a secret.
//
// Concurrency: a [Handler] serves many requests at once; its Config's functions
// must allow that.
package ui

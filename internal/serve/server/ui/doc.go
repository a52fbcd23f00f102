// Package ui serves the status page: the pods, volumes and drivers of this node, what
// each waits for, and what happened since the page was opened.
//
// Owns: the page (one document with its script and style, no outside resource) and the
// stream of rows that feeds it.
//
// Does not: change anything, compute more than a selection of status fields, or check
// who asks: the page shows only what the health port may show to everyone on the
// machine, and never a secret.
//
// Concurrency: a [Handler] serves many requests at once; the functions of its Config
// must be safe for concurrent use.
package ui

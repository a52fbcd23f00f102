// Package server is the node API: HTTP with JSON on a unix socket, metrics and
// health on a loopback port, and the explanation of why a volume is not there.
//
// Owns: the paths under /v1 and the types they carry, the socket file, and
// [Explain], a pure function from what is known to one causal chain.
//
// Does not: decide anything about a volume, decode manifests, or keep state.
// What it shows and changes it reaches through the interfaces of this package.
//
// A list answers {"items": [...]}; with ?watch=true it answers one [Event] a
// line, at first one for each item, and then one for each change. An error
// answers [Error] with a status code. Unknown fields are to be ignored by
// readers: fields are added within v1, and none is renamed or removed.
//
// Concurrency: a [Server] serves many requests at once; the implementations of
// its interfaces must allow that.
package server

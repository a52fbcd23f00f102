// Package server implements the node API (HTTP with JSON on a unix socket), serves
// metrics and health on a loopback port, and explains why a volume is not mounted.
//
// Owns: the paths under /v1 and the types they carry, the socket file, and [Explain], a
// pure function from the known facts to one causal chain.
//
// Does not: decide anything about a volume, decode manifests, or keep state. It reads
// and changes state only through the interfaces of this package.
//
// A list answers {"items": [...]}. With ?watch=true it streams one [Event] per line:
// first one for each item, then one for each change. A failed request is answered with
// an [Error] and its status code. Clients must ignore unknown fields: v1 may gain
// fields, but none is renamed or removed.
//
// Concurrency: a [Server] serves many requests at once; the implementations of its
// interfaces must be safe for concurrent use.
package server

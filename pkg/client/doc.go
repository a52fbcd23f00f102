// Package client is the Go client of a csi-volmgr daemon's API, for programs that run
// containers and for front ends: they apply pods, wait for mounts, and list what is there.
//
// It owns the requests, and types of its own for the answers. These have the fields that a
// program acts on, under the API's JSON names; a field that the API has besides is dropped.
// [Client.Do] makes every other request of the API, with types of the caller.
// docs/reference/api.md lists the requests, docs/reference/openapi.yaml the fields.
//
// It does not start a daemon, repeats no request, and keeps nothing between requests but
// connections. Package pkg/node is a volume manager within a program, without a daemon.
//
// A [Client] may be used by many goroutines at once; each request ends with its context.
package client

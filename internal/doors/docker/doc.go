// Package docker serves Docker's volume plugin protocol, which podman speaks too:
// HTTP/1.1 with JSON on a unix socket.
//
// Owns: the socket, the protocol's paths and messages, and the check of who may use it
// (root).
//
// Does not: know what a volume is made of, count users, or decide when a volume is
// unmounted. It asks a [Volumes], which internal/wants/named implements.
//
// The protocol is documented at https://docs.docker.com/engine/extend/plugins_volume/.
// The way in which dockerd 20.10 to 29 and podman 4.3 to 5.8 use it requires more:
//
//   - An error is answered with status 500: podman reads the status and ignores "Err".
//   - dockerd forgets a volume, with its name and options, if Get answers any error; the
//     next container then gets an empty local volume of that name. If the connection
//     closes without an answer, dockerd keeps the volume. So Get and List never answer
//     [named.ErrUnknown].
//   - dockerd repeats a request for 30 seconds if its connection failed. So an error that
//     occurs while the daemon stops is not answered either. If the connection broke after
//     the request was sent, the repetition has no body; Get is not answered then.
//   - A client that is gone did not get its mount and may send no Unmount for it. So the
//     server undoes a Mount if it cannot deliver the answer.
//
// Concurrency: a [Server] serves many requests at once; its Volumes must be safe for
// concurrent use.
package docker

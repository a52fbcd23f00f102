// Package docker serves Docker's volume plugin protocol, which podman speaks too:
// HTTP/1.1 with JSON on a unix socket.
//
// Owns: the socket, the protocol's paths and messages, and who may use it (root).
//
// Does not: know what a volume is made of, count users, or decide when a volume is
// unmounted. It asks a [Volumes], which pkg/source/named is.
//
// The protocol is documented at https://docs.docker.com/engine/extend/plugins_volume/.
// What follows from how dockerd 20.10 to 29 and podman 4.3 to 5.8 use it:
//
//   - An error is answered with status 500: podman reads the status and ignores "Err".
//   - dockerd forgets a volume, with its name and options, when Get answers an error,
//     whatever it says; the next container then gets an empty local volume of that name.
//     A connection that closes without an answer keeps the entry. So Get and List never
//     answer [named.ErrUnknown].
//   - dockerd repeats for 30 seconds a request whose connection failed. So an error that
//     comes while the daemon stops is not answered either.
//   - A client that has gone did not get its mount, and may send no Unmount for it. So a
//     Mount whose answer cannot be delivered is taken back.
//
// Concurrency: a [Server] serves many requests at once; its Volumes must allow that.
package docker

// Package csiclient calls one CSI driver: it keeps the connection, knows the
// driver's abilities, builds requests and classifies the answers.
//
// It owns the connection and its loss and return ([Dial], Config.OnChange), the
// driver's abilities ([Info]), the requests as pure functions (request.go), their
// size limits in CSI (limits.go), the outcome of each gRPC code (outcome.go), the
// directories that a call needs or leaves (dirs.go), and one log line and one
// measurement for each call (observe.go).
//
// It does not decide what to call or when to retry, keep records, mount, or
// check the kernel after an answer; its caller does.
//
// Every method of [Driver] may be called from any goroutine. The caller must not
// make two calls for one volume at the same time.
//
// # Driver faults that were observed, and how they are handled
//
// The tests have the same numbers (TestDriverLesson…).
//
//  1. A driver answers OK to a repeated NodePublishVolume without mounting
//     anything, because it takes the directory that its failed attempt left for a
//     finished mount. An empty, unmounted leftover at the target is removed before
//     the first publish and after a definite failure, so that the driver starts
//     anew. The caller checks whether the target is a mount after an OK.
//  2. A driver publishes an empty staging directory after its stage was lost.
//     Only a caller that remembers what was staged can notice; nothing is done here.
//  3. A dead FUSE mount makes stat fail with ENOTCONN. This package neither opens
//     nor follows a path that it gives to a driver, it only looks at directory
//     entries, so the calls that repair the mount are made.
//  4. A renewal (the mount is in phase present) that fails removes nothing.
//  5. A driver unmounts, removes the target, and answers INTERNAL every time;
//     and 11. a driver answers INTERNAL for ever to an unpublish of a target
//     that does not exist. If nothing was at the target before or after the call,
//     an INTERNAL or UNKNOWN that the driver itself sent counts as done. The first
//     such answer is still an error, so a driver that did half of its work is
//     called once more. This holds for Unpublish only: a missing staging directory
//     says nothing about the device behind it.
//  6. A failed publish leaves a plain directory, in which a workload would write
//     to the host's disk. It is removed as in 1. A directory that is not empty is
//     reported and never removed.
//  7. After a deadline the driver may go on, and may still mount or unmount:
//     the outcome is uncertain and nothing is cleaned up.
//  8. ABORTED means that an earlier call still runs: the outcome is uncertain.
//  9. A failure may take long: every call has a deadline (Deadlines).
//  10. NOT_FOUND counts as done for Unpublish and Unstage.
//  12. A directory that a driver leaves after OK is removed by rmdir, never
//     recursively; for a block volume an empty file, a device node or a link is
//     unlinked.
//  13. INTERNAL for a second, read-only target is an ordinary failure.
package csiclient

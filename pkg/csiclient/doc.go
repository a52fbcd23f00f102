// Package csiclient speaks to one CSI driver: the connection, what the driver
// can do, the requests, and what its answers mean.
//
// Owns: the connection and its loss and return ([Dial], Config.OnChange), the
// driver's abilities ([Info]), the requests as pure functions (request.go), the
// limits that CSI sets them (limits.go), the gRPC code table (outcome.go), the
// directories that a call needs or leaves (dirs.go), one log line and one
// measurement a call (observe.go).
//
// Does not: decide what to call or when to repeat it, keep records, mount, or
// ask whether an answer is true; that is its caller's.
//
// Concurrency: every method of [Driver] may be called from any goroutine. Two
// calls for one volume at a time are the caller's to prevent.
//
// # What drivers were seen to do, and what is done about it
//
// The numbers are those of the tests (TestDriverLesson…).
//
//  1. A driver answers OK to a repeated NodePublishVolume with nothing mounted,
//     because the directory that its failed attempt left looks fresh to it. An
//     empty, unmounted leftover at the target is removed before a first publish
//     and after a definite failure of one, so the driver starts from nothing.
//     Whether the target is a mount after an OK is for the caller to look at.
//  2. A driver publishes an empty staging directory when its stage was lost.
//     Only a caller that remembers what stage showed can know; nothing here.
//  3. A dead FUSE mount at a path makes stat fail with ENOTCONN. No path given
//     to a driver is opened or followed here: preparing looks at directory
//     entries only, so the calls that mend the mount are made.
//  4. A renewal (the mount is in phase present) that fails removes nothing.
//  5. A driver unmounts, removes the target, and answers INTERNAL every time;
//     and 11. a driver answers INTERNAL for ever to an unpublish of a target
//     that does not exist. When nothing was at the target before the call and
//     nothing after it, an INTERNAL or UNKNOWN that the driver itself sent counts
//     as done: the first answer is still an error, so that a driver which did
//     half of its work is asked once more. This holds for Unpublish alone: a
//     staging directory that is gone says nothing about the device behind it.
//  6. A failed publish leaves a plain directory in which a workload would write
//     to the host's disk: removed as in 1. One that is not empty is never
//     touched, but reported.
//  7. After a deadline the driver may go on, and may still mount or unmount:
//     the outcome is uncertain and nothing is cleaned up.
//  8. ABORTED answers mean that an earlier call still runs: uncertain.
//  9. Failures may take long: every call has its deadline (Deadlines).
//  10. NOT_FOUND on Unpublish and Unstage counts as done.
//  12. What a driver leaves after OK is removed by rmdir, never recursively; for
//     a block volume an empty file, a device node or a link is unlinked.
//  13. INTERNAL for a second, read-only target is an ordinary failure.
package csiclient

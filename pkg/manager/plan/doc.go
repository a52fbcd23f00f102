// Package plan makes every decision of csi-volmgr about one volume: which call
// to make next, what the record says before and after it, when to retry, and
// what the record means after a restart.
//
// Owns: [Next], [Begin], [Intent], [Complete], [Adopt], [Keep], the back-off and the limits.
//
// Does not: I/O, clocks, locks, goroutines, logging. Every function is pure and
// never changes its arguments, so that a test can visit every reachable state
// (explore_test.go does).
//
// The loop that uses it is, for one volume:
//
//	op, held := Next(want, volume, facts, now)
//	begun := Begin(volume, op, ...)
//	if !Covers(durable, begun, op) { write Intent(begun, op, ...) durably }
//	volume = Begin(volume, op, ...)     // then make the call
//	volume = Complete(volume, op, result, now)
//
// # Why it is right
//
// A phase is absent only if nothing exists: Begin leaves absent before the call
// is made, and only a removal that succeeded returns to it. If the answer, the
// process or the power is lost, the only possible error of the record is to say
// that a thing may exist although it does not. The next call, which is
// idempotent, finds out. A fact leaves entering when the same call is repeated
// or undone; it leaves leaving only when the same call is repeated (rule 2).
//
// The journal may lag behind memory and is still safe. Before the first call of
// a chain it is written with every fact that the chain will touch already
// entering (or leaving). So mounting a pod's volume costs one durable write, and
// the results of its calls are written lazily.
package plan

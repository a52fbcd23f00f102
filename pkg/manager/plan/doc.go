// Package plan holds every decision of csi-volmgr about one volume: which call
// to make next, what the record says before and after it, when to try again,
// and what a restart makes of it.
//
// Owns: [Next], [Begin], [Intent], [Complete], [Adopt], [Keep], the back-off and the limits.
//
// Does not: I/O, clocks, locks, goroutines, logging. Every function is a pure
// function of values and never changes its arguments, so that a test can walk
// every state that is reachable at all (explore_test.go does).
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
// A record's phase is absent only if nothing is there: Begin leaves absent
// before the call is made, and only a removal that succeeded returns to it. So
// whatever is lost (the answer, the process, the power), the record errs only
// by calling a thing possible that is not there, and the next call, which is
// idempotent, finds out. Entering is left by the same call repeated or by its
// negation; leaving only by the same call repeated (rule 2).
//
// The journal may lag behind memory and still say no less. It was written
// before the first call of a chain with every fact that the chain will touch
// already entering (or leaving), which is why a pod's mount pays one durable
// write; what calls then report is written lazily.
package plan

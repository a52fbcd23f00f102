// Package schedule makes snapshots of claims at set moments, and deletes the oldest.
//
// Owns: the bucket "schedules" of the journal, when a schedule is due, and which of its
// snapshots goes.
//
// Does not: make or delete a snapshot itself, or know drivers; its Config's functions do.
//
// Invariants:
//   - A moment that was missed, or several, is made up for once.
//   - Of the snapshots that the schedule made, in the order in which it made them, the oldest
//     that is ready goes when more are ready than are to be kept; never the last, and never
//     by a clock.
//   - The next is not made before the last is ready, so that none pile up at a driver that is away.
//
// Concurrency: all methods of [Keeper] may be called from any goroutine.
package schedule

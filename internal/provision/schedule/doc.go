// Package schedule creates snapshots of claims periodically and deletes the oldest ones.
//
// Owns: the bucket "schedules" of the journal, when a schedule is due, and which of its snapshots
// to delete.
//
// Does not: create or delete snapshots itself, or know drivers; the functions in its Config do.
//
// Invariants:
//   - After one or more missed due times, a schedule creates a single snapshot.
//   - If more snapshots of the claim's present volume are ready than should be kept, the schedule
//     deletes the one of them that it created first. It never deletes the last one, and never
//     decides by a clock.
//   - It deletes no snapshot that is not known to be of the claim's present volume. One of another
//     volume leaves the schedule and stays.
//   - The schedule does not create the next snapshot before the last one is ready, so snapshots
//     do not pile up while a driver is away.
//
// Concurrency: any goroutine may call the methods of [Keeper].
package schedule

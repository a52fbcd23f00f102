// Package sim proves the VolumeManager by simulation: the real manager, planner
// and journal format against drivers, a kernel, a disk and sources that live in
// memory and fail in every way that they can, under virtual time. Beside it runs
// the real controller of claims, snapshots and group snapshots.
//
// A seed makes a script, and a script decides everything that happens: what
// pods want, which calls fail and how, when the daemon dies, when the node is
// rebooted. After every step, and at every call, the rules of ARCHITECTURE.md
// are checked against the truth, which the manager sees only through its calls
// and looks. A script that breaks one is made as short as it can be and printed.
//
// docs/testing.md says how to run it and how to replay a seed.
package sim

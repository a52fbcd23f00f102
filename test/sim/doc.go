// Package sim proves the VolumeManager by simulation, under virtual time: the real manager, planner
// and journal format run against drivers, a kernel, a disk and sources that are in memory and fail
// in every possible way. Beside them run the real controller of claims, snapshots and group
// snapshots, the real binder and resolution of the claims of two authors, and the real keeper of
// schedules. A pod with very many volumes asks for them beside small pods.
//
// A seed makes a script, and a script decides everything that happens: what pods want, which calls
// fail and how, when the daemon dies, when the node reboots. After every step and at every call,
// the judge checks the rules of ARCHITECTURE.md against the truth, which the manager sees only
// through its calls and looks. A script that breaks a rule is shortened as far as possible and
// printed.
//
// docs/testing.md says how to run it and how to replay a seed.
package sim

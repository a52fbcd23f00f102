//go:build race

package sim

// raced: the race detector is on. The tests that build the simulation with a bug build it without
// the detector, so they would only do again what make test does.
const raced = true

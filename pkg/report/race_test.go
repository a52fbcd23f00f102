//go:build race

package report

// raced: the race detector is on. It has nothing to find in functions without
// goroutines and makes the walk ten times as long, so only the smallest is made.
const raced = true

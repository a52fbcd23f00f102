//go:build race

package report

// raced: the race detector is on. It finds nothing in functions without goroutines and makes the walk ten times as
// long, so only the smallest scenario is walked.
const raced = true

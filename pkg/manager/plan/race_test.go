//go:build race

package plan

// raced: the race detector is on. It finds nothing in functions without goroutines and makes the
// walk ten times as long, so only the smallest walk is made.
const raced = true

//go:build race

package state

// raced: the race detector is on. It finds nothing where one goroutine opens one journal after
// another, and makes that five times as long.
const raced = true

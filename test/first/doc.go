// Package first plays what a newcomer meets first: no driver, no class, no root, a taken port, a full disk, a typing
// error. For each failure the program's words must name the cause and one next command. The test types that
// command as it is printed, and sees that what had failed works. It runs the real program in a private mount
// namespace.
//
// A new first failure is a row of the table in first_test.go.
package first

// Package failpoint builds csi-volmgr so that a test can kill it at every place where it
// changes the host.
//
// There is a failpoint before and after every statement that writes the journal, calls a
// driver, or makes, removes, renames, mounts or unmounts something. The source has no
// failpoints: [Build] finds the statements by their syntax and builds the program with an
// overlay. So the shipped program has none, and each new statement gets its own.
//
// The environment says where a process dies (process.go.txt): at one place, or once at
// every place that its runs reach.
package failpoint

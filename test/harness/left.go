package harness

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
)

// Mounts lists the mount points below the node's directory, the newest first.
func (n *Node) Mounts() (found []string) {
	n.T.Helper()
	for _, line := range n.MountTable() {
		found = append(found, line[4])
	}
	slices.Reverse(found)
	return found
}

// MountTable returns the fields of the mount table's lines below the node's directory.
func (n *Node) MountTable() (lines [][]string) {
	n.T.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.T.Error(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.Dir+"/") {
			lines = append(lines, f)
		}
	}
	return lines
}

// Loops lists the loop devices whose files are below the node's directory.
func (n *Node) Loops() (found []string) {
	n.T.Helper()
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		n.T.Error(err)
	}
	for _, file := range files {
		// A device that was detached after it was listed does not count.
		if b, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(b), n.Dir+"/") {
			found = append(found, "/dev/"+strings.Split(file, "/")[3])
		}
	}
	return found
}

// NothingHeld fails the test for each mount and loop device that is left.
func (n *Node) NothingHeld() {
	n.T.Helper()
	if left := n.Mounts(); len(left) > 0 {
		n.T.Errorf("mounts left: %q", left)
	}
	if left := n.Loops(); len(left) > 0 {
		n.T.Errorf("loop devices left: %q", left)
	}
}

// Journal opens the journal of a daemon that has ended, and returns the journal and its file.
func (n *Node) Journal() (opened *journal.Bolt, file string) {
	n.T.Helper()
	files, err := filepath.Glob(n.Path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.T.Fatalf("journal: got %q, %v, want one file", files, err)
	}
	opened, err = journal.OpenBolt(files[0])
	if err != nil {
		n.T.Fatal(err)
	}
	return opened, files[0]
}

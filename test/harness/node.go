package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

const (
	// Patience is how long anything may take on a busy machine. A test that passes
	// never waits that long.
	Patience = 2 * time.Minute
	// Name is the node's name.
	Name = "node-1"
)

// Node is the directories of a daemon, and clients of that daemon.
type Node struct {
	T   *testing.T
	Dir string
	// Root is the daemon's root directory.
	Root string
	// Socket is the daemon's socket, and API a client of it.
	Socket string
	API    *client.Client
	// Program is the path of csi-volmgr.
	Program string
	// StorageID is the daemon's storage id; "" leaves it to the daemon, which may need the machine's id.
	StorageID string
}

// NewNode makes the directory of a node on which nothing runs yet, and removes it
// when the processes of the test have ended. socket is relative to that directory.
func NewNode(t *testing.T, program, socket string) *Node {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-") // t.TempDir's path is too long for a socket's
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{T: t, Dir: dir, Root: filepath.Join(dir, "root"), Socket: filepath.Join(dir, socket), Program: program, StorageID: Name}
	n.API = client.New(n.Socket)
	for _, d := range []string{n.Root, filepath.Dir(n.Socket)} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(n.clean)
	return n
}

// Path returns the path of a file of the node.
func (n *Node) Path(name string) string { return filepath.Join(n.Dir, name) }

// clean removes the node's directory; it runs after all processes of the test were killed.
func (n *Node) clean() {
	n.API.Close()
	for _, m := range n.Mounts() {
		unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	for _, device := range n.Loops() {
		if f, err := os.Open(device); err == nil {
			unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			f.Close()
		}
	}
	if err := os.RemoveAll(n.Dir); err != nil {
		n.T.Error(err)
	}
}

// ShowIfFailed logs the end of what processes wrote if the test has failed.
func (n *Node) ShowIfFailed(all ...*Process) {
	n.T.Helper()
	for _, p := range all {
		if p != nil && n.T.Failed() {
			n.T.Logf("end of %s:\n%s", p.Log(), p.Tail())
		}
	}
}

// Daemon returns the command that starts a daemon on the node's directories with the flags.
func (n *Node) Daemon(flags ...string) []string {
	args := []string{
		"run", "--root-dir", n.Root, "--state-dir", n.Path("state"), "--socket", n.Socket,
		"--http-address", "off", "--node-name", Name, "--log-level", "debug",
	}
	if n.StorageID != "" {
		args = append(args, "--storage-id", n.StorageID)
	}
	return append(args, flags...)
}

// Answered starts a daemon with start and returns it when it answers.
func (n *Node) Answered(start func() *Process) *Process {
	n.T.Helper()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		n.T.Fatal(err)
	}
	defer w.Close()
	run := filepath.Dir(n.Socket)
	if err := os.MkdirAll(run, 0o755); err != nil {
		n.T.Fatal(err)
	}
	if err := w.Add(run); err != nil {
		n.T.Fatal(err)
	}
	daemon := start()
	deadline := time.After(Patience)
	for {
		if _, err := n.API.Version(n.T.Context()); err == nil {
			return daemon
		}
		select {
		case <-w.Events:
		case <-daemon.Done():
			n.T.Fatalf("the daemon ended: %v\n%s", daemon.Err(), daemon.Tail())
		case <-deadline:
			n.T.Fatal("the daemon does not answer")
		}
	}
}

// CLI runs csi-volmgr against the daemon.
func (n *Node) CLI(stdin string, args ...string) Result {
	n.T.Helper()
	return Run(n.T, stdin, n.Program, append([]string{"--socket", n.Socket}, args...)...)
}

// Do runs csi-volmgr, which must succeed.
func (n *Node) Do(stdin string, args ...string) string {
	n.T.Helper()
	r := n.CLI(stdin, args...)
	if r.Code != 0 {
		n.T.Fatalf("csi-volmgr %q: exit code %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// Apply applies the documents of a manifest.
func (n *Node) Apply(docs ...string) {
	n.T.Helper()
	n.Do(strings.Join(docs, "\n---\n"), "apply", "-f", "-")
}

// Mount returns the mount of a pod's volume, which must exist.
func (n *Node) Mount(pod, volume string) server.Mount {
	n.T.Helper()
	mounts, err := n.API.Mounts(n.T.Context(), "default", pod)
	if err != nil {
		n.T.Fatal(err)
	}
	for _, m := range mounts {
		if m.Name == volume {
			return m
		}
	}
	n.T.Fatalf("pod %s has no mounted volume %s, but %v", pod, volume, mounts)
	return server.Mount{}
}

// HostPath returns the path of the pod's volume on the host.
func (n *Node) HostPath(pod, volume string) string {
	n.T.Helper()
	return n.Mount(pod, volume).HostPath
}

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	exampleDriver = "memory.example.com"
	examplePod    = "../../examples/driver/pod.yaml" // a volume of 64Mi
)

// The driver of examples/driver does for a daemon what its pod.yaml asks.
func TestTheExampleOfADriver(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	startExampleDriver(n)
	n.start()
	n.driverUp(exampleDriver)
	n.do("", "apply", "-f", examplePod)
	n.mounted("memory")
	if err := memoryOf(n.hostPath("memory", "cache"), 64<<20); err != nil {
		t.Error(err)
	}
	n.deletePod("memory")
	n.nothingLeft()
}

// The agent of examples/embed makes a pod's volumes without a daemon, and takes
// them back at SIGTERM.
func TestTheExampleOfEmbedding(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	startExampleDriver(n)
	agent, err := buildMain(n.path("embed"), "examples/embed")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), agent, "-manifest", examplePod, "-root", n.root, "-state", n.path("state"))
	var said strings.Builder
	cmd.Stderr = &said
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "cache" {
			t.Errorf("it says %q; want the path of cache", line)
		}
		err = memoryOf(path, 64<<20)
	}
	if err = errors.Join(err, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Fatalf("%v; it said:\n%s", err, said.String())
	}
	if left := mountsBelow(t, n.dir); len(left) != 0 {
		t.Errorf("mounts left: %q", left)
	}
	for _, path := range n.tree() {
		t.Errorf("left: %s", path)
	}
}

// startExampleDriver builds and starts the driver of examples/driver.
func startExampleDriver(n *node) {
	n.t.Helper()
	binary, err := buildMain(n.path("example-driver"), "examples/driver")
	if err != nil {
		n.t.Fatal(err)
	}
	start(n.t, n.dir, binary, "-root", n.root, "-node", nodeName)
}

// memoryOf fails unless path is a writable tmpfs of size bytes.
func memoryOf(path string, size uint64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", path, err)
	}
	if have := st.Blocks * uint64(st.Bsize); st.Type != unix.TMPFS_MAGIC || have != size {
		return fmt.Errorf("%s: file system %#x of %d bytes; want a tmpfs of %d", path, st.Type, have, size)
	}
	return os.WriteFile(filepath.Join(path, "file"), []byte("data"), 0o600)
}

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// parts are a claim of the local driver, by its file system and size, and a pod whose containers each mount
// a part of a volume: one of the claim's, one of an emptyDir.
const parts = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: own}
provisioner: local.csi-volmgr.dev
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: %s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: own, accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: of-claim, image: none, volumeMounts: [{name: data, mountPath: /d, subPath: made/here}]}
  - {name: of-node, image: none, volumeMounts: [{name: scratch, mountPath: /d, subPath: made/here}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: scratch, emptyDir: {}}
`

// frozenNode is a daemon that serves the local driver itself, with a volume that is frozen, as for a
// snapshot.
type frozenNode struct {
	*node
	volume string // where pod web has it
	stage  string
	thaw   func()
}

// newFrozenNode freezes the volume until the test ends or thaw is called. The file system is not xfs, since
// mkfs.xfs looks at other mounts, and those of tests beside this one may hang.
func newFrozenNode(t *testing.T, fsType, size string) *frozenNode {
	t.Helper()
	n := &frozenNode{node: newPlace(t)}
	n.flags = []string{"--local-driver"}
	n.start()
	n.DriverUp(localdriver.DefaultName)
	n.Apply(fmt.Sprintf(parts, fsType, size))
	n.Mounted("web")
	n.volume = n.HostPath("web", "data")
	for _, m := range n.Mounts() {
		if filepath.Base(m) == "globalmount" {
			n.stage = m
		}
	}
	dir, err := os.Open(n.volume)
	if err != nil {
		t.Fatal(err)
	}
	n.thaw = sync.OnceFunc(func() {
		unix.IoctlSetInt(int(dir.Fd()), iocThaw, 0) // fails if it is not frozen
		dir.Close()
	})
	t.Cleanup(n.thaw)
	if err := unix.IoctlSetInt(int(dir.Fd()), iocFreeze, 0); err != nil {
		t.Fatalf("freeze %s: %v", n.volume, err)
	}
	return n
}

// The ioctls that freeze and thaw a file system (linux/fs.h).
const (
	iocFreeze = 0xc0045877
	iocThaw   = 0xc0045878
)

// replaced kills the daemon and starts the next one while the volume is frozen.
func (n *frozenNode) replaced() {
	n.T.Helper()
	n.daemon.Crash() // Kill would wait for the end
	select {
	case <-n.daemon.Done():
	case <-time.After(harness.Patience):
		n.T.Fatalf("the killed daemon has not ended after %v", harness.Patience)
	}
	n.start()
	n.DriverUp(localdriver.DefaultName)
}

// removed checks that the pod and the claim can go.
func (n *frozenNode) removed() {
	n.T.Helper()
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.NothingHeld()
}

// partOf asks for the mounts of a container, and returns the path of the only one.
func (n *frozenNode) partOf(container string) (string, error) {
	of := server.Container{Namespace: "default", Pod: "web", Name: container}
	mounts, err := n.API.ContainerMounts(n.T.Context(), of)
	if err == nil && len(mounts) != 1 {
		err = fmt.Errorf("container %s has mounts %+v, want one", container, mounts)
	}
	if err != nil {
		return "", err
	}
	return mounts[0].HostPath, nil
}

// A missing subPath in a frozen file system is made after the thaw, and only its container waits. The
// daemon answers others meanwhile. If it is killed, it ends, and the next one takes its locks: it alone
// would thaw, by its journal, what its predecessor froze for a snapshot.
func TestAMissingSubPathInAFrozenVolumeKeepsNoDaemonAlive(t *testing.T) {
	t.Parallel()
	n := newFrozenNode(t, "ext4", "16Mi")
	defer n.thaw() // before the daemons are killed
	asked := make(chan error, 1)
	go func() {
		_, err := n.partOf("of-claim")
		asked <- err
	}()
	n.Eventually("the directory to wait for the thaw", func() bool { return waitsIn(n.volume, unix.SYS_MKDIRAT) })
	if _, err := n.partOf("of-node"); err != nil {
		t.Errorf("a subPath of another volume: %v", err)
	}
	n.replaced()
	if err := <-asked; err == nil {
		t.Error("the killed daemon has made a directory in the frozen file system")
	}
	if !waitsIn(n.volume, unix.SYS_MKDIRAT) {
		t.Error("the directory no longer waits for the thaw, so the next daemon was not started beside it")
	}
	n.thaw()
	at, err := n.partOf("of-claim")
	if err != nil {
		t.Fatalf("after the thaw: %v", err)
	}
	bound, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := os.Stat(filepath.Join(n.volume, "made/here")); err != nil || !os.SameFile(bound, made) {
		t.Errorf("%s is not the directory in the volume: %v", at, err)
	}
	n.removed()
}

// The driver in the daemon grows a frozen file system after the thaw. The daemon can be killed and
// replaced meanwhile.
func TestAGrowthOfAFrozenVolumeKeepsNoDaemonAlive(t *testing.T) {
	t.Parallel()
	n := newFrozenNode(t, "btrfs", "256Mi")
	defer n.thaw()
	n.Apply(fmt.Sprintf(parts, "btrfs", "384Mi"))
	n.Eventually("the growth to wait for the thaw", func() bool { return waitsIn(n.stage, unix.SYS_IOCTL) })
	n.replaced()
	if !waitsIn(n.stage, unix.SYS_IOCTL) {
		t.Error("the growth no longer waits for the thaw, so the next daemon was not started beside it")
	}
	n.thaw()
	n.Eventually("the growth", func() bool {
		var st unix.Statfs_t
		return unix.Statfs(n.volume, &st) == nil && int64(st.Blocks)*int64(st.Bsize) > 300<<20
	})
	n.removed()
}

// waitsIn reports whether a thread is in a system call whose first argument is a file at or below path.
func waitsIn(path string, number int) bool {
	calls, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/syscall") // the pattern is valid
	for _, call := range calls {
		b, err := os.ReadFile(call) // the number of the call and its arguments
		fields := strings.Fields(string(b))
		if err != nil || len(fields) < 2 || fields[0] != strconv.Itoa(number) {
			continue // it has ended, or runs
		}
		fd, err := strconv.ParseUint(fields[1], 0, 64)
		if err != nil {
			continue
		}
		file, err := os.Readlink(filepath.Join(filepath.Dir(call), "fd", strconv.FormatUint(fd, 10)))
		if err == nil && pathname.Within(file, path) {
			return true
		}
	}
	return false
}

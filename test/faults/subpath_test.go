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

// parts are a claim of the local driver with a file system that can be frozen, and a pod whose containers
// each mount a part of a volume: one of the claim, one of the node's disk.
const parts = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: ext4}
provisioner: %s
parameters: {csi.storage.k8s.io/fstype: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: ext4, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: frozen, image: none, volumeMounts: [{name: data, mountPath: /d, subPath: made/here}]}
  - {name: other, image: none, volumeMounts: [{name: scratch, mountPath: /d, subPath: made/here}]}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: scratch, emptyDir: {}}
`

// A missing subPath in a frozen file system is made after the thaw, and only its container waits. The
// daemon answers others meanwhile. If it is killed, it ends, and the next one takes its locks: it alone
// would thaw, by its journal, what its predecessor froze for a snapshot.
func TestAMissingSubPathInAFrozenVolumeKeepsNoDaemonAlive(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	n.flags = []string{"--local-driver"}
	n.start()
	n.DriverUp(localdriver.DefaultName)
	n.Apply(fmt.Sprintf(parts, localdriver.DefaultName))
	n.Mounted("web")
	volume := n.HostPath("web", "data")
	thaw := n.fsfreeze(volume)
	defer thaw() // before the daemons are killed
	asked := make(chan error, 1)
	go func() {
		_, err := n.partOf("frozen")
		asked <- err
	}()
	n.Eventually("the directory to wait for the thaw", func() bool { return makesIn(volume) })
	if _, err := n.partOf("other"); err != nil {
		t.Errorf("a subPath of another volume: %v", err)
	}
	n.daemon.Crash()
	select {
	case <-n.daemon.Done():
	case <-time.After(harness.Patience):
		t.Fatalf("the killed daemon has not ended after %v", harness.Patience)
	}
	if err := <-asked; err == nil {
		t.Error("the killed daemon has made a directory in the frozen file system")
	}
	n.start()
	n.DriverUp(localdriver.DefaultName)
	if !makesIn(volume) {
		t.Error("the directory does not wait for the thaw any more, so the new daemon was not beside it")
	}
	thaw()
	at, err := n.partOf("frozen")
	if err != nil {
		t.Fatalf("after the thaw: %v", err)
	}
	bound, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := os.Stat(filepath.Join(volume, "made/here")); err != nil || !os.SameFile(bound, made) {
		t.Errorf("%s is not the directory in the volume: %v", at, err)
	}
	n.DeletePods("web")
	n.DeleteClaims("data")
	n.NothingHeld()
}

// partOf asks for the mounts of a container, and returns the path of the only one.
func (n *node) partOf(container string) (string, error) {
	mounts, err := n.API.ContainerMounts(n.T.Context(), server.Container{Namespace: "default", Pod: "web", Name: container})
	if err != nil || len(mounts) != 1 {
		return "", fmt.Errorf("container %s has mounts %+v: %w", container, mounts, err)
	}
	return mounts[0].HostPath, nil
}

// The ioctls that freeze and thaw a file system (linux/fs.h).
const (
	iocFreeze = 0xc0045877
	iocThaw   = 0xc0045878
)

// fsfreeze freezes the file system mounted at path until the test ends or thaw is called.
func (n *node) fsfreeze(path string) (thaw func()) {
	n.T.Helper()
	dir, err := os.Open(path)
	if err != nil {
		n.T.Fatal(err)
	}
	thaw = sync.OnceFunc(func() {
		unix.IoctlSetInt(int(dir.Fd()), iocThaw, 0) // fails if it is not frozen
		dir.Close()
	})
	n.T.Cleanup(thaw)
	if err := unix.IoctlSetInt(int(dir.Fd()), iocFreeze, 0); err != nil {
		n.T.Fatalf("freeze %s: %v", path, err)
	}
	return thaw
}

// makesIn reports whether a thread is in mkdirat(2) in a directory at or below path.
func makesIn(path string) bool {
	calls, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/syscall") // the pattern is valid
	for _, call := range calls {
		b, err := os.ReadFile(call) // the number of the call and its arguments; empty if the thread has ended
		fields := strings.Fields(string(b))
		if err != nil || len(fields) < 2 || fields[0] != strconv.Itoa(unix.SYS_MKDIRAT) {
			continue
		}
		dir, err := os.Readlink(filepath.Join(filepath.Dir(call), "fd", decimal(fields[1])))
		if err == nil && pathname.Within(dir, path) {
			return true
		}
	}
	return false
}

// decimal returns a number of /proc without its base.
func decimal(hex string) string {
	n, _ := strconv.ParseUint(hex, 0, 64) // 0 would be no directory
	return strconv.FormatUint(n, 10)
}

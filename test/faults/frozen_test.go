package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// freeze mounts a FUSE file system at path whose server answers that it is there
// and nothing more, until the test ends or thaw is called, which is its death.
func (n *node) freeze(path string) (thaw func()) {
	n.t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { server.Close() }) // twice is no harm
	data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,allow_other,fd=%d", server.Fd())
	if err := unix.Mount("frozen", path, "fuse.frozen", 0, data); err != nil {
		n.t.Fatal(err)
	}
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		n.t.Fatal(err)
	}
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	if _, err := unix.Write(int(server.Fd()), reply); err != nil {
		n.t.Fatal(err)
	}
	return func() { server.Close() }
}

// hostPod is a pod with a directory of the host, and its volume's name.
func hostPod(name, path string) string {
	return pod(name, volume{name: "host", source: fmt.Sprintf("hostPath: {path: %s, type: Directory}", path)})
}

// A path on storage that does not answer holds up the pods that want it, and
// nobody else: others come and go, all is explained, and the daemon can be killed
// and started beside it. When the storage is dead for good, the pods are told.
//
// Faults: A039.
func TestFrozenStorageHoldsUpItsOwnPods(t *testing.T) {
	t.Parallel()
	const frozen = 8
	n := newPlace(t)
	dir := filepath.Join(n.dir, "disks")
	n.flags = []string{"--host-path-allow", dir}
	var paths []string
	var thaw []func()
	for i := range frozen {
		paths = append(paths, filepath.Join(dir, fmt.Sprint(i)))
		if err := os.MkdirAll(paths[i], 0o755); err != nil {
			t.Fatal(err)
		}
		thaw = append(thaw, n.freeze(paths[i]))
	}
	n.begin(csistrict.Script{})
	var docs []string
	for i := range frozen {
		docs = append(docs, hostPod(fmt.Sprintf("frozen-%d", i), paths[i]+"/data"))
	}
	n.apply(docs...)
	for round := range 2 {
		n.apply(pod("good", inline()), pod("scratch", volume{name: "empty", source: "emptyDir: {}"}))
		n.mounted("good", "scratch")
		for i := range frozen {
			n.explained("pod", fmt.Sprintf("frozen-%d", i), "Publish")
		}
		n.deletePods("good", "scratch")
		if round == 0 {
			n.daemon.kill() // which waits for its end
			n.start()
			n.driverUp()
		}
	}
	for _, f := range thaw {
		f()
	}
	for i := range frozen {
		n.explained("pod", fmt.Sprintf("frozen-%d", i), "transport endpoint is not connected")
		n.deletePods(fmt.Sprintf("frozen-%d", i))
	}
	for _, p := range paths {
		if err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", p, err)
		}
	}
	n.verdict()
}

// Volumes that are frozen when the daemon starts keep neither it nor others: it
// answers, all is explained, what is new is mounted, and none of them is touched;
// their pods can go.
//
// Faults: A040, A126.
func TestStartBesideFrozenVolumes(t *testing.T) {
	t.Parallel()
	const frozen = 50
	n := newNode(t, csistrict.Script{})
	var pods, docs []string
	for i := range frozen {
		pods = append(pods, fmt.Sprintf("frozen-%d", i))
		docs = append(docs, pod(pods[i], inline()))
	}
	n.apply(docs...)
	n.mounted(pods...)
	n.daemon.kill()
	for _, p := range pods {
		n.freeze(n.target(p))
	}
	calls := len(n.nodeCalls())
	n.start()
	n.driverUp()
	n.apply(pod("good", inline()))
	n.mounted("good")
	n.deletePods("good")
	for _, p := range pods[:5] {
		n.explained("pod", p, p)
	}
	if out := n.do("", "get", "pods"); strings.Count(out, "frozen-") != frozen {
		t.Errorf("get pods:\n%s", out)
	}
	if got := len(n.nodeCalls()) - calls; got != 2 {
		t.Errorf("calls made: %d, want the two of the pod that came and went: %q", got, n.nodeCalls()[calls:])
	}
	// Whoever made the mounts over the volumes takes them away.
	for _, p := range pods {
		if err := unix.Unmount(n.target(p), unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	n.deletePods(pods...)
	n.verdict()
}

// target returns where the pod's only volume is mounted, also while no daemon runs.
func (n *node) target(pod string) string {
	n.t.Helper()
	for _, e := range n.events("NodePublishVolume") {
		if e.Event != "begin" || !strings.Contains(string(e.Request), `"`+pod+`"`) {
			continue
		}
		for _, m := range n.mounts() {
			if strings.Contains(string(e.Request), m) {
				return m
			}
		}
	}
	n.t.Fatalf("pod %s has no mount", pod)
	return ""
}

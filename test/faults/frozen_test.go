package faults

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// freeze mounts a FUSE file system at path. Its server answers the kernel's first request
// and nothing more. The server dies when the test ends or thaw is called.
func (n *node) freeze(path string) (thaw func()) {
	n.T.Helper()
	server := n.freezeServer(path)
	n.T.Cleanup(func() { server.Close() }) // closing it twice does no harm
	return func() { server.Close() }
}

// freezeServer is freeze, and returns the server's end of the connection.
func (n *node) freezeServer(path string) *os.File {
	n.T.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		n.T.Fatal(err)
	}
	data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,allow_other,fd=%d", server.Fd())
	if err := unix.Mount("frozen", path, "fuse.frozen", 0, data); err != nil {
		n.T.Fatal(err)
	}
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		n.T.Fatal(err)
	}
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	if _, err := unix.Write(int(server.Fd()), reply); err != nil {
		n.T.Fatal(err)
	}
	return server
}

// hostPod is a pod with a volume that is a directory of the host.
func hostPod(name, path string) string {
	return harness.Pod(name, volume{Name: "host", Source: fmt.Sprintf("hostPath: {path: %s, type: Directory}", path)})
}

// A path on storage that does not answer holds up only the pods that want it. Other pods
// come and go, all pods are explained, and the daemon can be killed and started beside the
// storage. When the storage is dead for good, explain says so about each pod.
//
// Faults: A039.
func TestFrozenStorageHoldsUpItsOwnPods(t *testing.T) {
	t.Parallel()
	const frozen = 8
	n := newPlace(t)
	dir := filepath.Join(n.Dir, "disks")
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
	n.Apply(docs...)
	for round := range 2 {
		n.Apply(harness.Pod("good", inline()), harness.Pod("scratch", volume{Name: "empty", Source: "emptyDir: {}"}))
		n.Mounted("good", "scratch")
		for i := range frozen {
			n.explained("pod", fmt.Sprintf("frozen-%d", i), "Publish")
		}
		n.DeletePods("good", "scratch")
		if round == 0 {
			n.daemon.Kill() // Kill waits until the daemon has ended
			n.start()
			n.DriverUp(driverName)
		}
	}
	for _, f := range thaw {
		f()
	}
	for i := range frozen {
		n.explained("pod", fmt.Sprintf("frozen-%d", i), "transport endpoint is not connected")
		n.DeletePods(fmt.Sprintf("frozen-%d", i))
	}
	for _, p := range paths {
		if err := unix.Unmount(p, unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", p, err)
		}
	}
	n.verdict()
}

// Frozen volumes do not keep the daemon from starting or hold up other volumes. The daemon
// answers, explains all pods and mounts new volumes. It touches no frozen volume, and their
// pods can be deleted.
//
// Items: E17.
// Faults: A040, A126.
func TestStartBesideFrozenVolumes(t *testing.T) {
	t.Parallel()
	const frozen = 50
	n := newNode(t, csistrict.Script{})
	var pods, docs []string
	for i := range frozen {
		pods = append(pods, fmt.Sprintf("frozen-%d", i))
		docs = append(docs, harness.Pod(pods[i], inline()))
	}
	n.Apply(docs...)
	n.Mounted(pods...)
	n.daemon.Ask() // so that it writes what it just mounted
	var servers []*os.File
	for _, p := range pods {
		s := n.freezeServer(n.target(p))
		t.Cleanup(func() { s.Close() })
		servers = append(servers, s)
	}
	calls := len(n.nodeCalls())
	n.start()
	n.DriverUp(driverName)
	n.answersAtOnce([]string{"get", "pods"}, []string{"get", "volumes", "-o", "json"}, []string{"explain", "pod", pods[0]}, []string{"who", n.target(pods[0])})
	n.Apply(harness.Pod("good", inline()))
	n.Mounted("good")
	n.DeletePods("good")
	for _, p := range pods[:5] {
		n.explained("pod", p, p)
	}
	if out := n.Do("", "get", "pods"); strings.Count(out, "frozen-") != frozen {
		t.Errorf("get pods:\n%s", out)
	}
	n.unasked(servers)
	if got := len(n.nodeCalls()) - calls; got != 2 {
		t.Errorf("calls made: %d, want the two of the pod that came and went: %q", got, n.nodeCalls()[calls:])
	}
	// The test unmounts the file systems that it mounted over the volumes.
	for _, p := range pods {
		if err := unix.Unmount(n.target(p), unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	n.DeletePods(pods...)
	n.verdict()
}

// answerDeadline is the longest time for an answer on a busy machine. On an idle one an
// answer takes a tenth of a second.
const answerDeadline = 10 * time.Second

// answersAtOnce runs the commands, and prints how long each took.
func (n *node) answersAtOnce(questions ...[]string) {
	n.T.Helper()
	for _, args := range questions {
		began := time.Now()
		n.Do("", args...)
		took := time.Since(began)
		n.T.Logf("csi-volmgr %s beside frozen volumes: %v", strings.Join(args[:2], " "), took.Round(time.Millisecond))
		if took > answerDeadline {
			n.T.Errorf("csi-volmgr %q took %v, more than %v", args, took, answerDeadline)
		}
	}
}

// unasked checks that neither the daemon nor its helpers sent a request to the frozen file
// systems, so nothing in csi-volmgr waits for them. Other processes of the machine may have
// sent some.
func (n *node) unasked(servers []*os.File) {
	n.T.Helper()
	request := make([]byte, 1<<17)
	for _, s := range servers {
		fd := int(s.Fd())
		if info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd)); err != nil || !strings.Contains(string(info), "fuse_connection:") {
			n.T.Log("this kernel does not say what /dev/fuse is open for (Linux 6.14 does), so file systems are asked whether they live")
			return
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			n.T.Fatal(err)
		}
		for {
			if _, err := unix.Read(fd, request); err != nil {
				if err != unix.EAGAIN {
					n.T.Error(err)
				}
				break
			}
			pid := binary.NativeEndian.Uint32(request[32:]) // struct fuse_in_header
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == program {
				n.T.Errorf("csi-volmgr (process %d) asked a frozen file system: request %d", pid, binary.NativeEndian.Uint32(request[4:]))
			}
		}
	}
}

// target returns the path at which the pod's only volume is mounted. It needs no running
// daemon.
func (n *node) target(pod string) string {
	n.T.Helper()
	for _, e := range n.events("NodePublishVolume") {
		if e.Event != "begin" || !strings.Contains(string(e.Request), `"`+pod+`"`) {
			continue
		}
		for _, m := range n.Mounts() {
			if strings.Contains(string(e.Request), m) {
				return m
			}
		}
	}
	n.T.Fatalf("pod %s has no mount", pod)
	return ""
}

package wire

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// hungServer mounts a FUSE file system at path, whose server answers the kernel's first request and nothing more, as
// that of an NFS mount whose server is gone. It returns the server's end, whose closing ends all that hangs.
func hungServer(t *testing.T, path string) *os.File {
	t.Helper()
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() }) // twice does no harm
	data := fmt.Sprintf("rootmode=40000,user_id=0,group_id=0,allow_other,fd=%d", server.Fd())
	if err := unix.Mount("hung", path, "fuse.hung", 0, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	request := make([]byte, 1<<17)
	if _, err := unix.Read(int(server.Fd()), request); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 16+64) // struct fuse_out_header, struct fuse_init_out
	binary.NativeEndian.PutUint32(reply, uint32(len(reply)))
	copy(reply[8:16], request[8:16]) // the request's id
	binary.NativeEndian.PutUint32(reply[16:], 7)
	binary.NativeEndian.PutUint32(reply[20:], 31)
	binary.NativeEndian.PutUint32(reply[36:], 1<<16) // max_write
	if _, err := unix.Write(int(server.Fd()), reply); err != nil {
		t.Fatal(err)
	}
	return server
}

// podOf returns a pod with one volume.
func podOf(name, source string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %[1]s, uid: u-%[1]s}\nspec:\n  containers: [{name: c, image: i, "+
		"volumeMounts: [{name: v, mountPath: /v}]}]\n  volumes: [{name: v, %[2]s}]\n", name, source)
}

// calling counts the volumes of the kind with a call in flight.
func calling(n *Node, driver state.DriverName) (count int) {
	for _, v := range n.manager.Volumes() {
		if v.Volume.Spec.Driver == driver && v.Call.Kind != plan.None {
			count++
		}
	}
	return count
}

// A dead server holds up the pods that want its files, and no other: beside eight of them, whose calls hang, 500 pods get
// their volumes and lose them. Each call that hangs keeps a helper, and starts no others. The helpers use little of a
// processor, as without the dead server.
func TestADeadServerHoldsUpItsOwnPods(t *testing.T) {
	const (
		healthy = 500
		hung    = 8
		most    = 8 // helpers besides those that hang
	)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Minute, errors.New("held up for three minutes"))
	defer cancel()
	helpers := &helperCount{}
	c := dirs(t)
	c.Helper, c.HostPaths = helpers.command, []string{filepath.Join(t.TempDir(), "server")}
	if err := os.Mkdir(c.HostPaths[0], 0o755); err != nil {
		t.Fatal(err)
	}
	server := hungServer(t, c.HostPaths[0])
	n, stop := start(t, c)
	defer stop()
	var text strings.Builder
	for i := range hung {
		text.WriteString(podOf(fmt.Sprintf("hung%d", i), fmt.Sprintf("hostPath: {path: %s/%d, type: Directory}", c.HostPaths[0], i)))
	}
	apply(t, n, text.String())
	for changed := n.manager.Changed(); calling(n, kind.HostPath) < hung; changed = n.manager.Changed() {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
	text.Reset()
	for i := range healthy {
		text.WriteString(podOf(fmt.Sprint("p", i), "emptyDir: {medium: Memory}"))
	}
	used := processorOf(t)
	apply(t, n, text.String())
	uid := func(i int) state.PodUID { return state.PodUID(fmt.Sprint("u-p", i)) }
	for i := range healthy {
		if err := n.manager.WaitForAttachAndMount(ctx, uid(i)); err != nil {
			t.Fatal(err)
		}
	}
	var calls sync.WaitGroup
	for i := range healthy {
		calls.Go(func() {
			if err := n.DeletePod(ctx, "default", fmt.Sprint("p", i)); err != nil {
				t.Error(err)
			}
			if err := n.manager.WaitForUnmount(ctx, uid(i)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	own := processorOf(t) - used
	for i := range hung {
		if p, _ := n.manager.Pod(state.PodUID(fmt.Sprintf("u-hung%d", i))); p.Ready {
			t.Errorf("pod hung%d is ready", i)
		}
	}
	server.Close()
	stop()
	helped := helpers.processor()
	t.Logf("%d helpers started, which used %v of a processor, this process %v", len(helpers.started), helped, own)
	if len(helpers.started) > most+hung {
		t.Errorf("%d helpers started, want at most %d", len(helpers.started), most+hung)
	}
	if helped > own || helped < time.Millisecond {
		t.Errorf("the helpers used %v of a processor, this process %v", helped, own)
	}
}

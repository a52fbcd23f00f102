//go:build vm

package guest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/nfs"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// export is the directory of the server, which is this kernel's.
const export = "/export"

// serveNFS starts a server on this machine's own addresses.
func serveNFS(t *testing.T) {
	t.Helper()
	if mountOf(t, "/proc/fs/nfsd") != "" {
		return
	}
	sh(t, "modprobe", "nfsd")
	sh(t, "mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
	sh(t, "mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", mkdir(t, export))
	sh(t, "rpcbind")
	for _, client := range []string{"127.0.0.1", "[::1]"} {
		sh(t, "exportfs", "-o", "rw,fsid=0,insecure,no_root_squash,no_subtree_check", client+":"+export)
	}
	write(t, "/proc/fs/nfsd/nfsv4gracetime", "10")
	write(t, "/proc/fs/nfsd/nfsv4leasetime", "10")
	sh(t, "rpc.nfsd", "4")
	sh(t, "rpc.mountd")
	write(t, "/proc/fs/nfsd/v4_end_grace", "Y")
}

func newNFS(l state.Layout, unmountTime time.Duration) *nfs.Driver {
	return nfs.New(nfs.Config{Layout: l, Kernel: mount.New(l.Root), Run: new(program.Runner).Run, UnmountTime: unmountTime})
}

func nfsVolume(t *testing.T, l state.Layout, name string, src corev1.NFSVolumeSource, options ...string) state.Volume {
	t.Helper()
	return volume(t, l, state.Spec{Driver: nfs.Kind, Name: name, Mode: state.Filesystem, MountFlags: options}, src, pod, otherPod)
}

// Every version of the protocol, over IPv4 and IPv6: two pods have the server's
// directory, and one reads what the other writes. A read-only volume is read-only.
// In the end nothing is mounted and the server has the data.
//
// Items: M10.
func TestNFSOfEveryVersion(t *testing.T) {
	serveNFS(t)
	for _, tc := range []struct{ server, path, option, want string }{
		{"127.0.0.1", "/", "vers=4.2", "vers=4.2"},
		{"127.0.0.1", "/", "vers=4.1", "vers=4.1"},
		{"127.0.0.1", "/", "vers=4.0", "vers=4.0"},
		{"127.0.0.1", export, "vers=3,nolock", "vers=3"},
		{"::1", "/", "vers=4.2", "vers=4.2"},
	} {
		l := layout(t)
		d := newNFS(l, 0)
		v := nfsVolume(t, l, "share", corev1.NFSVolumeSource{Server: tc.server, Path: tc.path}, tc.option)
		reader := v.Mounts[otherPod]
		reader.ReadOnly = true
		v.Mounts[otherPod] = reader
		for _, uid := range []state.PodUID{pod, otherPod, pod} { // the last is a repetition
			if err := d.Publish(t.Context(), v, uid); err != nil {
				t.Fatalf("%+v: %v", tc, err)
			}
		}
		target := v.Mounts[pod].Target
		if line := mountOf(t, target); !strings.Contains(line, tc.want) {
			t.Errorf("%+v: mounted as %q", tc, line)
		}
		if m, err := mount.New(l.Root).MapsIDs(t.Context(), target); err != nil || m.IDs || !strings.HasPrefix(m.FSType, "nfs") {
			t.Errorf("%+v: ids can be mapped: %+v, %v", tc, m, err)
		}
		write(t, filepath.Join(target, "file"), tc.option)
		for _, dir := range []string{export, reader.Target} {
			if got := read(t, filepath.Join(dir, "file")); got != tc.option {
				t.Errorf("%+v: %s: got %q", tc, dir, got)
			}
		}
		if err := os.WriteFile(filepath.Join(reader.Target, "file"), nil, 0); err == nil {
			t.Errorf("%+v: written through the read-only mount", tc)
		}
		for _, uid := range []state.PodUID{pod, otherPod, pod} {
			if err := d.Unpublish(t.Context(), v, uid); err != nil {
				t.Errorf("%+v: %v", tc, err)
			}
		}
		wantGone(t, v)
		if got := read(t, filepath.Join(export, "file")); got != tc.option {
			t.Errorf("%+v: the server has %q", tc, got)
		}
		t.Logf("%s over %s: mounted twice, written, read, unmounted", tc.want, tc.server)
	}
}

// wantGone fails the test if anything of v is left.
func wantGone(t *testing.T, v state.Volume) {
	t.Helper()
	for _, m := range v.Mounts {
		if _, err := os.Lstat(m.Target); !errors.Is(err, os.ErrNotExist) || mountOf(t, m.Target) != "" {
			t.Errorf("%s: %v, mounted: %q", m.Target, err, mountOf(t, m.Target))
		}
	}
}

// losable is an address of the server that lose can make silent.
const losable = "192.0.2.2"

// writer starts a process that writes to a file and keeps it open, so that part of
// the data is not yet at the server. kill ends it with SIGKILL.
func writer(t *testing.T, path string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `exec 3>>"$0"; echo data >&3; echo ready; exec sleep 100000`, path)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("writer: %q, %v", line, err)
	}
	return func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // fails, since the process was killed
	}
}

// Rule 9, with a server that falls silent under a hard mount with unwritten data:
// its volume is removed from the node in time, and meanwhile another server's
// volumes come, work and go. When the server is back it gets the data, and the
// volume can be mounted again.
func TestDeadNFSServerHoldsUpNothingElse(t *testing.T) {
	serveNFS(t)
	gain(t, losable)
	sh(t, "exportfs", "-o", "rw,fsid=0,insecure,no_root_squash,no_subtree_check", losable+":"+export)
	// A version 4 client detects that both addresses are the same server, so the
	// other mount has version 3.
	for _, tc := range []struct{ far, farPath, near, nearPath string }{
		{"vers=3,nolock", export, "vers=4.2", "/"},
		{"vers=4.2", "/", "vers=3,nolock", export},
	} {
		t.Run(tc.far, func(t *testing.T) {
			l := layout(t)
			d := newNFS(l, 2*time.Second)
			far := nfsVolume(t, l, "far", corev1.NFSVolumeSource{Server: losable, Path: tc.farPath}, tc.far, "hard", "timeo=30")
			near := nfsVolume(t, l, "near", corev1.NFSVolumeSource{Server: "127.0.0.1", Path: tc.nearPath}, tc.near)
			loseServer(t, d, far, near)
		})
	}
}

func loseServer(t *testing.T, d *nfs.Driver, far, near state.Volume) {
	if err := d.Publish(t.Context(), far, pod); err != nil {
		t.Fatal(err)
	}
	name := "late-" + far.Spec.MountFlags[0]
	kill := writer(t, filepath.Join(far.Mounts[pod].Target, name))
	lose(t, losable)
	kill()
	gone := make(chan error, 1)
	go func() { gone <- d.Unpublish(t.Context(), far, pod) }()
	for range 3 {
		if err := d.Publish(t.Context(), near, pod); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(near.Mounts[pod].Target, "beside"), "x")
		if err := d.Unpublish(t.Context(), near, pod); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-gone; err != nil {
		t.Errorf("unpublish with a dead server: %v", err)
	}
	wantGone(t, far)
	wantGone(t, near)
	regain(t, losable)
	await(t, "the server gets what was written", func() bool {
		b, err := os.ReadFile(filepath.Join(export, name))
		return err == nil && string(b) == "data\n"
	})
	if err := d.Publish(t.Context(), far, pod); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(far.Mounts[pod].Target, name)); got != "data" {
		t.Errorf("the server is back, and its volume has %q", got)
	}
	if err := d.Unpublish(t.Context(), far, pod); err != nil {
		t.Error(err)
	}
	wantGone(t, far)
}

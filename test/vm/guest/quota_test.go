//go:build vm

package guest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/emptydir"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/quota"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// emptyDirs returns a driver for a root directory on its own disk, whose file
// system enforces project quotas.
func emptyDirs(t *testing.T, l state.Layout) *emptydir.Driver {
	t.Helper()
	return emptydir.New(emptydir.Config{Layout: l, Kernel: mount.New(l.Root), Quotas: quota.New()})
}

func scratch(t *testing.T, l state.Layout, limit string, pods ...state.PodUID) state.Volume {
	t.Helper()
	size := resource.MustParse(limit)
	return volume(t, l, state.Spec{Driver: emptydir.Kind, Name: "scratch"}, corev1.EmptyDirVolumeSource{SizeLimit: &size}, pods...)
}

// fill appends up to 12 MiB to a file, as a container without capabilities does:
// ext4 enforces no quota on a process with CAP_SYS_RESOURCE. It returns how much
// fit.
func fill(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/dd", "if=/dev/zero", "bs=64k", "count=192", "conv=fsync")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &said
	failed := cmd.Run()
	after, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	n := after.Size() - before.Size()
	if (failed == nil) != (n == 12<<20) {
		t.Errorf("wrote %d bytes: %v: %s", n, failed, said.Bytes())
	}
	return n
}

// An emptyDir holds no more than its own limit. The limit survives a restart, and goes
// with the volume.
//
// Items: M05.
func TestProjectQuotas(t *testing.T) {
	sh(t, "modprobe", "loop")
	for fs, mkfs := range map[string][]string{
		"ext4": {"mkfs.ext4", "-q", "-O", "project,quota", "-E", "quotatype=prjquota"},
		"xfs":  {"mkfs.xfs", "-q"},
	} {
		t.Run(fs, func(t *testing.T) {
			l := layout(t)
			image := filepath.Join(t.TempDir(), "image")
			write(t, image, "")
			if err := os.Truncate(image, 400<<20); err != nil {
				t.Fatal(err)
			}
			sh(t, mkfs[0], append(mkfs[1:], image)...)
			sh(t, "/bin/mount", "-o", "loop,prjquota", image, l.Root)
			t.Cleanup(func() { unix.Unmount(l.Root, unix.MNT_DETACH) })
			quotas(t, l, fs)
		})
	}
}

// limits counts this project's quota projects with a limit of bytes.
func limits(t *testing.T, root string) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(sh(t, "repquota", "-P", "-n", root)) {
		f := strings.Fields(line) // #id flags used soft hard ...
		if len(f) > 4 && strings.HasPrefix(f[0], "#16777") && f[4] != "0" {
			n++
		}
	}
	return n
}

func quotas(t *testing.T, l state.Layout, fs string) {
	d, v, free := emptyDirs(t, l), scratch(t, l, "8Mi", pod, otherPod), scratch(t, l, "0", pod)
	free.Spec.Name = "free"
	m := free.Mounts[pod]
	m.Target = l.BuiltinTarget(emptydir.Kind, pod, "free")
	free.Mounts[pod] = m
	for _, p := range []state.PodUID{pod, otherPod} {
		if err := d.Publish(t.Context(), v, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Publish(t.Context(), free, pod); err != nil {
		t.Fatal(err)
	}
	file := func(v state.Volume, p state.PodUID) string { return filepath.Join(v.Mounts[p].Target, "f") }
	if n := fill(t, file(v, pod)); n > 8<<20 || n < 7<<20 {
		t.Errorf("of 8 MiB: wrote %d bytes", n)
	}
	u, err := d.Usage(t.Context(), v, pod)
	if err != nil || u.Over() || u.Used > 8<<20 || u.Used < 7<<20 {
		t.Errorf("usage: %+v, %v", u, err)
	}
	// The other pod has a limit of its own, and a volume without a limit has none.
	if n := fill(t, file(v, otherPod)); n > 8<<20 || n < 7<<20 {
		t.Errorf("the other pod wrote %d bytes", n)
	}
	if n := fill(t, file(free, pod)); n != 12<<20 {
		t.Errorf("without a limit: %d bytes", n)
	}
	// A restart changes nothing.
	d = emptyDirs(t, l)
	if err := d.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	if n := fill(t, file(v, pod)); n > 1<<20 {
		t.Errorf("after a restart there was room for %d bytes", n)
	}
	if n := limits(t, l.Root); n != 2 {
		t.Errorf("%s: %d projects have limits, want 2", fs, n)
	}
	for _, p := range []state.PodUID{pod, otherPod} {
		if err := d.Unpublish(t.Context(), v, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Unpublish(t.Context(), free, pod); err != nil {
		t.Fatal(err)
	}
	if n := limits(t, l.Root); n != 0 {
		t.Errorf("%s: %d limits are left", fs, n)
	}
	if n := entries(t, l.Pods()+"/*"); n != 0 {
		t.Errorf("%s: %d directories of pods are left", fs, n)
	}
}

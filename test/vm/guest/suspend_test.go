//go:build vm

package guest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// TestMain is also the helper process that makes the calls on storage.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := away.Serve(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// blocked counts the threads of this program and its helpers that are in state D,
// where no signal wakes them.
func blocked(t *testing.T) int {
	t.Helper()
	return blockedIn(t, "[0-9]*")
}

// blockedIn counts those of the processes that match the pattern in /proc.
func blockedIn(t *testing.T, processes string) (count int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/" + processes + "/task/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		exe, _ := os.Readlink("/" + filepath.Join(strings.Split(path, "/")[1:3]...) + "/exe") // a kernel thread has none
		b, _ := os.ReadFile(path)                                                             // an ended thread has none
		if _, rest, ok := strings.Cut(string(b), ") "); ok && exe == self && strings.HasPrefix(rest, "D") {
			count++
		}
	}
	return count
}

// A process that unmounts the file system of a suspended disk blocks in the kernel,
// where no signal ends it. That costs one helper, however often the unmount is
// retried. Another volume comes and goes meanwhile, and when the disk is back, all
// data is there.
func TestSuspendedDiskCostsOneHelper(t *testing.T) {
	for _, module := range []string{"loop", "ext4", "dm_mod"} {
		sh(t, "modprobe", module)
	}
	pool := newHelpers(t)
	l := layout(t)
	kernel := mount.New(l.Root).MakeAway(pool)
	d := local.New(local.Config{Layout: l, Kernel: kernel, Allow: []string{"/dev"}, Run: new(program.Runner).Run})
	ext4 := "ext4"
	disk := func(name string) (device string) {
		t.Helper()
		image := "/" + name + ".img"
		sh(t, "truncate", "-s", "64M", image)
		return strings.TrimSpace(sh(t, "/sbin/losetup", "--find", "--show", image))
	}
	of := func(name, device string) state.Volume {
		t.Helper()
		v := volume(t, l, state.Spec{Driver: local.Kind, Name: name, Mode: state.Filesystem}, corev1.LocalVolumeSource{Path: device, FSType: &ext4}, pod)
		if err := d.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		return v
	}
	backing, other := disk("slow"), disk("other")
	sh(t, "dmsetup", "create", "slow", "--table", fmt.Sprintf("0 %d linear %s 0", 64<<20/512, backing))
	sh(t, "dmsetup", "mknodes")
	slow := of("slow", "/dev/mapper/slow")
	write(t, slow.Mounts[pod].Target+"/file", "written before")
	sh(t, "dmsetup", "suspend", "--nolockfs", "slow")

	const tries = 8
	goroutines := 0
	for try := range tries {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		err := d.Unpublish(ctx, slow, pod)
		cancel()
		t.Logf("try %d: %v", try, err)
		if err == nil {
			t.Error("unpublished while its disk is suspended")
		}
		if got := blocked(t); got > 1 {
			t.Errorf("try %d: %d threads are blocked, want one", try, got)
		}
		switch got := runtime.NumGoroutine(); {
		case try == 1:
			goroutines = got
		case try > 1 && got > goroutines+2:
			t.Errorf("try %d: %d goroutines, %d after the second", try, got, goroutines)
		}
	}
	if got := len(pool.Stats().Hung); got != 1 {
		t.Errorf("%d calls hang, want 1: %+v", got, pool.Stats())
	}
	if got := blocked(t); got != 1 {
		t.Errorf("%d threads are blocked, want the one that unmounts", got)
	}
	quick := of("quick", other)
	write(t, quick.Mounts[pod].Target+"/file", "meanwhile")
	if err := d.Unpublish(t.Context(), quick, pod); err != nil {
		t.Errorf("another volume: %v", err)
	}

	sh(t, "dmsetup", "resume", "slow")
	await(t, "the volume to be unpublished", func() bool { return d.Unpublish(t.Context(), slow, pod) == nil })
	await(t, "nothing to hang", func() bool { return len(pool.Stats().Hung) == 0 && blocked(t) == 0 })
	again := of("slow", "/dev/mapper/slow")
	if got := read(t, again.Mounts[pod].Target+"/file"); got != "written before" {
		t.Errorf("after it is back: %q", got)
	}
	if err := d.Unpublish(t.Context(), again, pod); err != nil {
		t.Error(err)
	}
	sh(t, "udevadm", "settle") // udev opens a disk after its unmount, and dmsetup needs it closed
	sh(t, "dmsetup", "remove", "slow")
	for _, device := range []string{backing, other} {
		sh(t, "/sbin/losetup", "-d", device)
	}
}

package holders

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestContainersAreReadFromCgroupPaths(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	const uid = "11111111-2222-3333-4444-555555555555"
	for _, tt := range []struct {
		name, text string
		want       Container
	}{
		{"kubelet and containerd under systemd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice/cri-containerd-" + id + ".scope\n", Container{ID: id, Runtime: "containerd", Pod: uid}},
		{"kubelet with cgroupfs", "0::/kubepods/besteffort/pod" + uid + "/" + id + "\n", Container{ID: id, Pod: uid}},
		{"crio", "0::/kubepods.slice/kubepods-pod11111111_2222_3333_4444_555555555555.slice/crio-" + id + ".scope/container\n", Container{ID: id, Runtime: "crio", Pod: uid}},
		{"docker under systemd", "0::/system.slice/docker-" + id + ".scope\n", Container{ID: id, Runtime: "docker"}},
		{"docker with cgroupfs", "0::/docker/" + id + "\n", Container{ID: id, Runtime: "docker"}},
		{"podman", "0::/machine.slice/libpod-" + id + ".scope/container\n", Container{ID: id, Runtime: "podman"}},
		{"podman in a service", "0::/system.slice/web.service/libpod-" + id + "\n", Container{ID: id, Runtime: "podman"}},
		{"static pod", "0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + id + "\n", Container{ID: id, Pod: "0123456789abcdef0123456789abcdef"}},
		{"version 1", "12:memory:/docker/" + id + "\n1:name=systemd:/docker/" + id + "\n", Container{ID: id, Runtime: "docker"}},
		{"service", "0::/system.slice/rsync.service\n", Container{Unit: "rsync.service"}},
		{"session", "0::/user.slice/user-0.slice/session-1.scope\n", Container{}},
		{"nothing", "garbage\n", Container{}},
	} {
		if got := containerIn(tt.text); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// The files are what a machine with device-mapper and loop devices has in /proc and /sys.
func TestDevicesAboveAreFollowed(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	write := func(dir, path, text string) {
		path = filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	link := func(dir, path, to string) {
		path = filepath.Join(dir, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(to, path))
	}
	write(proc, "self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /vol rw - xfs /dev/sdb rw\n")
	link(proc, "self/ns/mnt", "mnt:[1]")
	link(sys, "dev/block/8:16", "../../devices/x/sdb")
	link(sys, "dev/block/8:1", "../../devices/x/sda/sda1")
	write(sys, "class/block/sdb/holders/dm-0/x", "")
	write(sys, "class/block/dm-0/dm/name", "crypt\n")
	write(sys, "class/block/dm-0/holders/md127/x", "")
	write(sys, "class/block/md127/size", "1")
	write(sys, "class/block/sda1/holders/dm-9/x", "")
	write(sys, "block/loop3/loop/backing_file", "/vol/images/a.img (deleted)\n")
	write(sys, "block/loop4/loop/backing_file", "/volume/b.img\n")
	r, err := (&Finder{Proc: proc, Sys: sys}).Find(t.Context(), Query{Paths: []string{"/vol"}})
	must(t, err)
	want := []Device{{"dm-0", "device-mapper", "crypt on sdb"}, {"loop3", "loop", "/vol/images/a.img"}, {"md127", "holder", "dm-0"}}
	if !slices.Equal(r.Devices, want) {
		t.Errorf("got %+v, want %+v", r.Devices, want)
	}
}

func TestWhoHasABlockDeviceOpenIsFound(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("dev", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	node := filepath.Join(dir, "disk") // as in a container, under another name
	must(t, unix.Mknod(node, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))))
	pid := holder(t, "path:"+node, false)
	r := find(t, Query{Devices: []uint64{7<<32 | 250}})
	if got := usesOf(r, pid); !slices.Equal(got, []string{"device " + node}) {
		t.Errorf("uses %q", got)
	}
	if r := find(t, Query{Devices: []uint64{7<<32 | 251}}); usesOf(r, pid) != nil {
		t.Error("another device is said to be open")
	}
}

// If a process waits for the storage, the kernel holds the lock of its memory map, and
// reading /proc/PID/maps hangs.
func TestALockedMemoryMapIsToldAndNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "5"), 0o755))
	fifo := filepath.Join(dir, "5", "maps")
	must(t, unix.Mkfifo(fifo, 0o600)) // opening it waits for a writer
	f := &Finder{Proc: dir}
	for range 2 {
		if _, err := f.readWithPatience(t.Context(), 5, "maps"); err == nil {
			t.Fatal("no error")
		}
	}
	f.mu.Lock()
	waiting := len(f.hung)
	f.mu.Unlock()
	if waiting != 1 {
		t.Errorf("%d wait for one process, want 1", waiting)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	must(t, err)
	must(t, w.Close())
	for waiting > 0 { // the reader that was left behind ends now
		runtime.Gosched()
		f.mu.Lock()
		waiting = len(f.hung)
		f.mu.Unlock()
	}
}

// On a busy machine a memory map stays locked for longer than a search waits for one process. A search that decides
// something asks again; it does not wait for storage that does not answer at all.
func TestASearchThatDecidesAsksAgain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		patience time.Duration
		unlocked bool
		maps     string
		used     bool
	}{
		{"it uses the volume", time.Minute, true, "10-20 r--p 0 8:16 7 /vol/f\n", true},
		{"it does not", time.Minute, true, "10-20 r--p 0 8:1 7 /bin/f\n", false},
		{"it stays locked", time.Millisecond, false, "", false},
		{"nothing is decided", 0, false, "", false},
	} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "5", "ns"), 0o755))
		must(t, os.MkdirAll(filepath.Join(dir, "self", "ns"), 0o755))
		for _, id := range []string{"5", "self"} {
			must(t, os.Symlink("mnt:[1]", filepath.Join(dir, id, "ns", "mnt")))
		}
		must(t, os.WriteFile(filepath.Join(dir, "self", "mountinfo"), []byte("1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:16 / /vol rw - xfs /dev/sdb rw\n"), 0o644))
		fifo := filepath.Join(dir, "5", "maps")
		must(t, unix.Mkfifo(fifo, 0o600))
		f := &Finder{Proc: dir, Sys: t.TempDir()}
		unlock := func() { // the reader that waits gets the text, and so does each later one
			must(t, os.Rename(fifo, fifo+".locked"))
			must(t, os.WriteFile(fifo, []byte(tt.maps), 0o600))
			w, err := os.OpenFile(fifo+".locked", os.O_WRONLY, 0)
			must(t, err)
			_, err = w.WriteString(tt.maps)
			must(t, err)
			must(t, w.Close())
		}
		if tt.unlocked {
			go func() {
				for !f.isHung("5") {
					runtime.Gosched()
				}
				unlock()
			}()
		}
		r, err := f.Find(t.Context(), Query{Paths: []string{"/vol"}, Patience: tt.patience})
		must(t, err)
		if len(r.Processes) == 1 != tt.used || len(r.Unread) == 0 != tt.unlocked || len(r.Unread) > 1 {
			t.Errorf("%s: %+v", tt.name, r)
		}
		if !tt.unlocked {
			unlock()
		}
	}
}

// What a search asks the kernel of a volume is asked again, too, if it decides something.
func TestASearchThatDecidesWaitsForTheKernel(t *testing.T) {
	for _, patience := range []time.Duration{0, time.Minute} {
		s := &search{f: &Finder{Patience: time.Nanosecond}, q: Query{Patience: patience}}
		slow := make(chan struct{})
		go func() {
			for !s.f.isHung("x") {
				runtime.Gosched()
			}
			s.f.Patience = time.Minute
			close(slow)
		}()
		got, err := patiently(t.Context(), s, "x", func() int { <-slow; return 7 })
		if want := patience > 0; want != (err == nil) || want != (got == 7) {
			t.Errorf("patience %v: %d, %v", patience, got, err)
		}
		s.f.ends(t.Context(), "x")
	}
}

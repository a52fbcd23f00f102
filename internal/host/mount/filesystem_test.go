package mount

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/diskfs"
)

func TestTmpfsIsAsAsked(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Tmpfs(target, TmpfsOptions{
			SizeBytes: 1 << 20, Inodes: 100, Mode: 0o750 | os.ModeSetgid, NoSwap: true, NoExec: true,
		}))
		var st unix.Statfs_t
		must(t, unix.Statfs(target, &st))
		if size := st.Blocks * uint64(st.Bsize); size != 1<<20 || st.Files != 100 {
			t.Errorf("%d bytes, %d inodes", size, st.Files)
		}
		if fi, err := os.Stat(target); err != nil || fi.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
			t.Errorf("mode %v, %v", fi.Mode(), err)
		}
		r := rowAt(t, target)
		if got := restrictions(r); r.fsType != "tmpfs" || !slices.Equal(got, []string{"nodev", "noexec", "nosuid"}) {
			t.Errorf("%s with %q", r.fsType, got)
		}
		if got := slices.Contains(r.superOptions, "noswap"); got != k.has(NoSwap) {
			t.Errorf("noswap: %v; the kernel can: %v", got, k.has(NoSwap))
		}

		plain := mkdir(t, dir, "plain")
		must(t, k.Tmpfs(plain, TmpfsOptions{}))
		r = rowAt(t, plain)
		if got := restrictions(r); !slices.Equal(got, []string{"nodev", "nosuid"}) || slices.Contains(r.superOptions, "noswap") {
			t.Errorf("without options: %q %q", got, r.superOptions)
		}
	})
}

func TestTmpfsOfHugePages(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		must(t, k.Tmpfs(dir, TmpfsOptions{HugePageSize: 2 << 20, SizeBytes: 4 << 20, NoSwap: true}))
		if r := rowAt(t, dir); r.fsType != "hugetlbfs" || !slices.Contains(r.superOptions, "pagesize=2M") {
			t.Errorf("%s with %q", r.fsType, r.superOptions)
		}
		must(t, unix.Unmount(dir, 0))
	})
}

func TestReconfigureChangesTheFileSystem(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Tmpfs(target, TmpfsOptions{SizeBytes: 1 << 20}))
		must(t, k.Reconfigure(target, []string{"size=2097152,noexec"}))
		var st unix.Statfs_t
		must(t, unix.Statfs(target, &st))
		if size := st.Blocks * uint64(st.Bsize); size != 2<<20 {
			t.Errorf("%d bytes", size)
		}
		if got := restrictions(rowAt(t, target)); !slices.Equal(got, []string{"nodev", "noexec", "nosuid"}) {
			t.Errorf("options %q", got)
		}
		must(t, k.Reconfigure(target, []string{"ro"}))
		if r := rowAt(t, target); !slices.Contains(r.superOptions, "ro") || !slices.Contains(r.options, "ro") {
			t.Errorf("not read-only: %q %q", r.options, r.superOptions)
		}
		must(t, k.Reconfigure(target, []string{"rw", "exec"}))
		write(t, target+"/file", "")
		if err := k.Reconfigure(target, []string{"size=nonsense"}); err == nil || !strings.Contains(err.Error(), target) {
			t.Errorf("nonsense: %v", err)
		}
	})
}

func TestFilesystemOfABlockDevice(t *testing.T) {
	device := ext4Device(t)
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Filesystem(link(t, device, dir+"/by-id"), target, "ext4",
			[]string{"noatime,nosuid", "data=ordered", "defaults", "x-test", "_netdev", "discard"}))
		r := rowAt(t, target)
		if r.fsType != "ext4" || r.source != device {
			t.Errorf("%s of %s, want ext4 of %s", r.fsType, r.source, device)
		}
		if got := restrictions(r); !slices.Equal(got, []string{"noatime", "nosuid"}) || !slices.Contains(r.superOptions, "discard") {
			t.Errorf("options %q, %q", got, r.superOptions)
		}
		if got, want := look(t, k, target).Dev, look(t, k, device).Dev; got != want {
			t.Errorf("Look sees device %x, want %x", got, want)
		}
		write(t, target+"/file", "kept")
		must(t, k.Unmount(t.Context(), target))

		must(t, k.Filesystem(device, target, "ext4", []string{"ro"}))
		if r := rowAt(t, target); !slices.Contains(r.options, "ro") || !slices.Contains(r.superOptions, "ro") || read(t, target+"/file") != "kept" {
			t.Errorf("read-only: %q %q", r.options, r.superOptions)
		}
		must(t, k.Unmount(t.Context(), target))
	})
}

func TestFilesystemErrorsSayWhy(t *testing.T) {
	device := ext4Device(t)
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target, file := mkdir(t, dir, "target"), write(t, dir+"/file", "")
		for _, c := range []struct {
			source, fsType, option string
			want                   error
			words                  string // from a kernel that explains
		}{
			{dir + "/absent", "ext4", "rw", unix.ENOENT, ""},
			{file, "ext4", "rw", unix.ENOTBLK, ""},
			{"relative", "ext4", "rw", unix.EINVAL, "absolute path"},
			{device, "nosuchfs", "rw", diskfs.ErrType, ""},
			{device, "proc", "rw", diskfs.ErrType, ""},
			{device, "ext4", "nonsense=1", diskfs.ErrOption, ""},
			{device, "ext4", "commit=nonsense", unix.EINVAL, "nonsense"},
			{device, "xfs", "rw", unix.EINVAL, "kernel log"},
		} {
			err := k.Filesystem(c.source, target, c.fsType, []string{c.option})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.source) || !strings.Contains(err.Error(), target) {
				t.Errorf("%s of %s: %v, want %v with both paths", c.fsType, c.source, err, c.want)
			} else if _, told := errors.AsType[*ContextError](err); told && !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v: want the words %q", err, c.words)
			}
		}
		if look(t, k, target).Mounted {
			t.Error("something is mounted")
		}
	})
}

// The error contains the kernel's own words: "EINVAL" alone helps no reader.
func TestContextErrorHasTheKernelsWords(t *testing.T) {
	needs(t, FSContext)
	k, dir := New(), scratch(t)
	err := k.newFilesystem("tmpfs", "none", dir, options{data: []string{"nonsense=1"}})
	told, ok := errors.AsType[*ContextError](err)
	if !ok || len(told.Messages) != 1 || !strings.Contains(told.Messages[0], "nonsense") || strings.HasPrefix(told.Messages[0], "e ") {
		t.Fatalf("%#v", err)
	}
	if !strings.Contains(err.Error(), told.Messages[0]) {
		t.Errorf("%q lacks %q", err, told.Messages[0])
	}
}

// ext4Device returns a loop device with an empty ext4.
func ext4Device(t *testing.T) string {
	t.Helper()
	image := scratch(t) + "/image"
	write(t, image, "")
	must(t, os.Truncate(image, 16<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	defer control.Close()
	backing, err := os.OpenFile(image, os.O_RDWR, 0)
	must(t, err)
	defer backing.Close()
	for range 100 { // another process may take the free one first
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		must(t, err)
		path := "/dev/loop" + procFD(n)[len("/proc/self/fd/"):]
		loop, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			t.Cleanup(func() { loop.Close() }) // which detaches it
			return path
		}
		loop.Close()
		if err != unix.EBUSY {
			t.Fatalf("configure %s: %v", path, err)
		}
	}
	t.Fatal("no loop device is free")
	return ""
}

// What an error of an ext4 does is what the volume's options say, or else it turns read-only: not what the disk says.
// One that an earlier version mounted goes on as it was mounted, and can be mounted a second time.
func TestAnErrorOfADiskIsNotTheDisksToAnswer(t *testing.T) {
	device := ext4Device(t)
	if out, err := exec.Command("tune2fs", "-e", "panic", device).CombinedOutput(); err != nil {
		t.Fatalf("tune2fs: %v: %s", err, out)
	}
	does := func() string {
		text, err := os.ReadFile("/proc/fs/ext4/" + filepath.Base(device) + "/options")
		must(t, err)
		_, rest, _ := strings.Cut(string(text), "errors=")
		word, _, _ := strings.Cut(rest, "\n")
		return word
	}
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target, second := mkdir(t, dir, "target"), mkdir(t, dir, "second")
		for options, want := range map[string]string{"": "remount-ro", "ro": "remount-ro", "errors=continue": "continue", "errors=remount-ro": "remount-ro"} {
			must(t, k.Filesystem(device, target, "ext4", []string{options}))
			if got := does(); got != want {
				t.Errorf("%q: errors=%s, want %s", options, got, want)
			}
			must(t, k.Unmount(t.Context(), target))
		}
		if err := k.Filesystem(device, target, "ext4", []string{"errors=panic"}); !errors.Is(err, ErrOption) {
			t.Errorf("errors=panic: %v, want ErrOption", err)
		}
		must(t, unix.Mount(device, target, "ext4", 0, "errors=continue"))
		must(t, k.Filesystem(device, second, "ext4", nil))
		if got := does(); got != "continue" {
			t.Errorf("mounted before: errors=%s", got)
		}
		must(t, k.Unmount(t.Context(), second))
		must(t, k.Unmount(t.Context(), target))
	})
}

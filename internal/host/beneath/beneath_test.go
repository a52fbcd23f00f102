package beneath_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/beneath"
)

const noLinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// tree makes a directory with files, directories and links of each kind, and returns it open.
func tree(t *testing.T) *os.File {
	t.Helper()
	top := t.TempDir()
	dir := filepath.Join(top, "v")
	err := errors.Join(os.MkdirAll(dir+"/d/e/f", 0o755), os.WriteFile(dir+"/file", []byte("in"), 0o600),
		os.WriteFile(dir+"/d/e/file", nil, 0o600), os.WriteFile(top+"/out", []byte("out"), 0o600))
	for name, to := range map[string]string{
		"dot": ".", "up": "..", "out": "../out", "abs": "/d", "root": "/", "etc": "/etc/passwd", "dangling": "none", "loop": "loop",
		"in": "d/e", "infile": "d/e/file", "slash": "d/", "fileslash": "file/", "chain": "in/../chain2", "chain2": "d/e/up",
		"d/e/up": "../../file", "d/e/far": "../../../../../../../../out", "d/back": "e/../../d/e", "proc": "/proc/self/cwd", "fd": "/proc/self/fd/1",
	} {
		err = errors.Join(err, os.Symlink(to, filepath.Join(dir, name)))
	}
	f, openErr := os.Open(dir)
	if err = errors.Join(err, openErr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// found describes what a look-up returned: which file, opened how, or which error. It closes the descriptor.
func found(t *testing.T, fd int, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	closes, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return fmt.Sprintf("inode %d of %d, mode %o, flags %#x, %d", st.Ino, st.Dev, st.Mode, flags&(unix.O_PATH|unix.O_ACCMODE), closes)
}

// Walk finds what the kernel finds, under each rule, for each path of a tree, or fails as the kernel does. EXPLORE=full
// compares all, else one in eight.
func TestWalkFindsWhatTheKernelFinds(t *testing.T) {
	dir := tree(t)
	if fd, err := unix.Openat2(int(dir.Fd()), ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}); err != nil {
		t.Skipf("this kernel has no openat2 to compare with: %v", err)
	} else {
		unix.Close(fd)
	}
	names := []string{
		".", "..", "d", "file", "none", "dot", "up", "out", "abs", "root", "etc", "dangling", "loop", "in", "infile", "slash",
		"fileslash", "chain", "chain2", "d/e/up", "d/e/far", "d/back", "proc", "fd", "d/e/f", "/", "/d", "/abs/e",
	}
	var paths []string
	for _, a := range names {
		paths = append(paths, a, a+"/", a+"/.", a+"/..", "./"+a, "d/../"+a, "d//e/../../"+a)
		for _, b := range names {
			paths = append(paths, a+"/"+b)
		}
	}
	rules := []uint64{
		unix.RESOLVE_BENEATH | noLinks, unix.RESOLVE_BENEATH | noLinks | unix.RESOLVE_NO_XDEV,
		unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS, unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV,
		unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	flags := []uint64{
		unix.O_PATH, unix.O_PATH | unix.O_NOFOLLOW, unix.O_PATH | unix.O_DIRECTORY, unix.O_RDONLY | unix.O_NONBLOCK, unix.O_RDONLY | unix.O_NOFOLLOW,
		unix.O_RDONLY | unix.O_DIRECTORY, unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW, unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW,
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, path := range paths {
		for _, rule := range rules {
			for _, flag := range flags {
				if os.Getenv("EXPLORE") != "full" && rng.IntN(8) != 0 {
					continue
				}
				how := unix.OpenHow{Flags: flag | unix.O_CLOEXEC, Resolve: rule}
				fd, err := unix.Openat2(int(dir.Fd()), path, &how)
				want := found(t, fd, err)
				fd, err = beneath.Walk(int(dir.Fd()), path, &how)
				if got := found(t, fd, err); got != want {
					t.Errorf("%q, rules %#x, flags %#x: got %s, want %s", path, rule, flag, got, want)
				}
			}
		}
	}
}

// Walk goes to no other mount where the rules say so, and from "/" alone without a rule to stay in a directory.
func TestWalkStopsAtMounts(t *testing.T) {
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, c := range []struct {
		path string
		rule uint64
		want error
	}{
		{"proc", unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV, unix.EXDEV},
		{"proc/self", unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV, unix.EXDEV},
		{"proc", unix.RESOLVE_BENEATH, nil},
		{"/proc/sys", noLinks, nil},
		{"/proc/self", noLinks, unix.ELOOP},
		{"proc", noLinks, unix.EINVAL},
	} {
		how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: c.rule}
		fd, err := beneath.Walk(int(root.Fd()), c.path, &how)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s, rules %#x: got %v, want %v", c.path, c.rule, err, c.want)
		}
	}
}

// A file is made in the directory that the walk found, and never over another.
func TestWalkMakesAFile(t *testing.T) {
	dir := tree(t)
	how := unix.OpenHow{
		Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC, Mode: 0o640,
		Resolve: unix.RESOLVE_BENEATH | noLinks | unix.RESOLVE_NO_XDEV,
	}
	for path, want := range map[string]error{"d/e/new": nil, "file": unix.EEXIST, "dangling": unix.EEXIST, "in/new": unix.ELOOP, "../new": unix.EXDEV} {
		fd, err := beneath.Walk(int(dir.Fd()), path, &how)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", path, err, want)
		}
	}
	if info, err := os.Lstat(dir.Name() + "/d/e/new"); err != nil || info.Mode()&^0o022 != 0o640&^0o022 {
		t.Errorf("new: %v, %v", info, err)
	}
}

// A second author exchanges each directory on the way with a link that leads out, while both ways to open are used:
// neither ever returns or makes anything outside.
//
// Attacks: C2.
func TestAttackExchangesWhilePathsAreOpened(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for name, open := range map[string]func(int, string, *unix.OpenHow) (int, error){"open": beneath.Open, "walk": beneath.Walk} {
		t.Run(name, func(t *testing.T) { exchanges(t, rand.New(rand.NewPCG(seed, 0)), open) })
	}
}

func exchanges(t *testing.T, rng *rand.Rand, open func(int, string, *unix.OpenHow) (int, error)) {
	top := t.TempDir()
	volume, canary := top+"/volume", top+"/canary"
	if err := errors.Join(os.MkdirAll(volume+"/a/b/c", 0o755), os.MkdirAll(canary+"/b/c", 0o755), os.WriteFile(volume+"/a/b/c/f", nil, 0o600),
		os.WriteFile(canary+"/f", nil, 0o600), os.WriteFile(canary+"/b/f", nil, 0o600), os.WriteFile(canary+"/b/c/f", nil, 0o600),
		os.Symlink(canary, volume+"/evil"), os.Symlink("../../canary", volume+"/sly")); err != nil {
		t.Fatal(err)
	}
	outside := map[uint64]string{}
	if err := filepath.Walk(canary, func(path string, _ os.FileInfo, err error) error {
		var st unix.Stat_t
		err = errors.Join(err, unix.Lstat(path, &st))
		outside[st.Ino] = path
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := len(outside)
	dir, err := os.Open(volume)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	stop, author := exchange(volume, rng.Uint64())
	opened := 0
	for i := 0; i < 20_000 || opened == 0 && i < 10_000_000; i++ {
		how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
		path := [...]string{"a/b/c/f", "a/b/c", "a/b/../b/c/f", "a/new"}[rng.IntN(4)]
		switch {
		case path == "a/new":
			how.Flags, how.Mode = unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600
			how.Resolve |= unix.RESOLVE_NO_SYMLINKS
		case rng.IntN(2) == 0:
			how.Resolve = unix.RESOLVE_IN_ROOT
		}
		fd, err := open(int(dir.Fd()), path, &how)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || outside[st.Ino] != "" {
			t.Errorf("%s led to %s, %v", path, outside[st.Ino], err)
		}
		unix.Close(fd)
		opened++
		_ = os.Remove(volume + "/a/new") // so that it can be made again
	}
	close(stop)
	if swaps := author(); opened == 0 || swaps == 0 {
		t.Errorf("%d opened, %d exchanges: nothing was raced", opened, swaps)
	}
	after := 0
	if err := filepath.Walk(canary, func(string, os.FileInfo, error) error { after++; return nil }); err != nil || after != before {
		t.Errorf("the canary has %d entries, want %d: %v", after, before, err)
	}
}

// exchange exchanges directories of the volume with links until stop is closed; author then returns how often.
func exchange(volume string, seed uint64) (stop chan struct{}, author func() int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	stop = make(chan struct{})
	swaps := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			at := volume + [...]string{"/a", "/a/b", "/a/b/c", "/a/b/c/f"}[rng.IntN(4)]
			evil := volume + [...]string{"/evil", "/sly"}[rng.IntN(2)]
			for range 2 { // the second puts it back
				if unix.Renameat2(unix.AT_FDCWD, evil, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE) == nil {
					swaps++
				}
			}
		}
	})
	return stop, func() int {
		wg.Wait()
		return swaps
	}
}

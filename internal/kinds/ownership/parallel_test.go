package ownership

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// forest makes dirs directories side by side and dirs nested ones, each with files
// files. It returns the top directory and the number of files and directories.
func forest(t *testing.T, dirs, files int) (*os.File, int64) {
	t.Helper()
	top := t.TempDir()
	deep, n := top, int64(1)
	for i := range dirs {
		side := filepath.Join(top, fmt.Sprint("side", i))
		deep = filepath.Join(deep, "deep")
		for _, dir := range []string{side, deep} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			for j := range files {
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", j)), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			n += int64(files) + 1
		}
	}
	f, err := os.Open(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, n
}

// owned counts the files and directories of the group.
func owned(t *testing.T, top string, gid uint32) (n int64) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		if st.Gid == gid {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyWalkersMissNothing: the walkers visit every file and directory once.
func TestManyWalkersMissNothing(t *testing.T) {
	top, all := forest(t, 12, 6)
	var each atomic.Int64
	if err := Apply(t.Context(), top, Options{GID: 2000, Each: func() { each.Add(1) }}); err != nil {
		t.Fatal(err)
	}
	if got := owned(t, top.Name(), 2000); got != all || each.Load() != all {
		t.Errorf("%d of %d have the group, %d were looked at", got, all, each.Load())
	}
}

// TestAWalkThatIsGivenUpEndsAtOnceAndIsTakenUpAgain: each walker ends after its current
// file. The root is not changed, so OnRootMismatch does not take the tree for done, and
// another walk does the rest.
func TestAWalkThatIsGivenUpEndsAtOnceAndIsTakenUpAgain(t *testing.T) {
	top, all := forest(t, 12, 6)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	var mu sync.Mutex // stops the other walkers while one cancels the walk
	each := 0
	o := Options{GID: 2000, OnRootMismatch: true, Each: func() {
		mu.Lock()
		defer mu.Unlock()
		if each++; each == 50 {
			cancel(enough)
		}
	}}
	if err := Apply(ctx, top, o); !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	// Each walker may have one file in progress.
	if each > 50+walkers {
		t.Errorf("%d were looked at after it was given up", each-50)
	}
	if ok, err := o.Matches(top); ok || err != nil {
		t.Errorf("the root has the group already: %v, %v", ok, err)
	}
	o.Each = nil
	again, err := os.Open(top.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := Apply(t.Context(), again, o); err != nil {
		t.Fatal(err)
	}
	if got := owned(t, top.Name(), 2000); got != all {
		t.Errorf("%d of %d have the group in the end", got, all)
	}
}

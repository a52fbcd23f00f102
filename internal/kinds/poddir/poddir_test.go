package poddir

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// volume returns a volume's directory below a new root.
func volume(t testing.TB, name string) (root string, d Dir) {
	t.Helper()
	l := state.Layout{Root: t.TempDir()}
	d, err := Of(l, state.Volume{Spec: &state.Spec{Driver: "kubernetes.io/empty-dir", Name: name}}, "uid")
	if err != nil {
		t.Fatal(err)
	}
	return l.Root, d
}

func TestMakeNewSaysWhetherItWasMissing(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	_, d := volume(t, "v")
	for _, want := range []bool{true, false} {
		made, err := d.MakeNew(0o777)
		if err != nil || made != want {
			t.Fatalf("made: %v, %v, want %v", made, err, want)
		}
		f, err := d.Make(0o700)
		if err != nil {
			t.Fatal(err)
		}
		st, err := f.Stat()
		if err != nil || st.Mode().Perm() != 0o777 || f.Name() != d.Path() {
			t.Errorf("%s: %v, %v", f.Name(), st, err)
		}
		f.Close()
	}
	if st, err := os.Stat(filepath.Dir(d.Path())); err != nil || st.Mode().Perm() != parentMode {
		t.Errorf("the directory above: %v, %v", st, err)
	}
}

// TestNoLinkIsFollowed: the target of a link in the path is neither opened nor made nor
// removed, also if each element is opened by itself.
func TestNoLinkIsFollowed(t *testing.T) {
	root, d := volume(t, "v")
	outside := filepath.Join(root, "outside") // outside of pods, but below the root
	if err := errors.Join(os.MkdirAll(filepath.Join(outside, "volumes/kubernetes.io~empty-dir/v"), 0o755),
		os.Mkdir(filepath.Join(root, "pods"), 0o755), os.Symlink("../outside", filepath.Join(root, "pods/uid"))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := d.Make(0o755); err == nil {
		t.Error("made through a link")
	}
	if err := d.Clear(t.Context(), mount.New(root)); err == nil {
		t.Error("removed through a link")
	}
	top, err := openRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	if _, err := openBelow(top, d.rel); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
	if _, err := os.Stat(filepath.Join(outside, "volumes/kubernetes.io~empty-dir/v")); err != nil {
		t.Error(err)
	}
}

// TestOnlyTheRootsOwnPathMayBeALink: a look-up of the whole path would refuse that,
// too.
func TestOnlyTheRootsOwnPathMayBeALink(t *testing.T) {
	real, d := volume(t, "v")
	d.root = filepath.Join(t.TempDir(), "root")
	if err := os.Symlink(real, d.root); err != nil {
		t.Fatal(err)
	}
	if made, err := d.MakeNew(0o755); err != nil || !made {
		t.Fatalf("made: %v, %v", made, err)
	}
	f, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := d.Clear(t.Context(), mount.New(d.root)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(real, "pods")); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if err := os.Remove(d.root); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Make(0o755); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("make where there is no root: %v, want an error that says nothing of a race", err)
	}
	if err := d.Clear(t.Context(), mount.New(d.root)); err != nil {
		t.Errorf("clear where there is no root: %v", err)
	}
}

func TestClearRemovesTheDirectoryAndWhatIsEmptyAboveIt(t *testing.T) {
	for _, file := range []string{"", "full/of/files"} {
		root, d := volume(t, "v")
		other := filepath.Join(filepath.Dir(d.Path()), "other")
		if err := os.MkdirAll(filepath.Join(d.Path(), file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(other, 0o755); err != nil {
			t.Fatal(err)
		}
		k := mount.New(root)
		if err := d.Clear(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(d.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the directory: %v", err)
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("that of another volume: %v", err)
		}
		if err := errors.Join(os.Remove(other), d.Clear(t.Context(), k)); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Join(root, "pods")); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	}
}

// BenchmarkMakeAndClear makes and clears a volume's directory for a pod that has
// another volume.
func BenchmarkMakeAndClear(b *testing.B) {
	root, d := volume(b, "v")
	if err := os.MkdirAll(filepath.Join(root, "pods/uid/volumes/kubernetes.io~secret/other"), 0o755); err != nil {
		b.Fatal(err)
	}
	k := mount.New(root)
	b.ReportAllocs()
	for b.Loop() {
		f, err := d.Make(0o755)
		if err != nil {
			b.Fatal(err)
		}
		if err := errors.Join(f.Close(), d.Clear(b.Context(), k)); err != nil {
			b.Fatal(err)
		}
	}
}

package hostpath_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// links makes symbolic links; the keys are their paths.
func (n *node) links(links map[string]string) {
	n.Helper()
	for name, to := range links {
		if err := os.Symlink(to, name); err != nil {
			n.Fatal(err)
		}
	}
}

// The driver follows links if every step stays within the allowed directories:
// /var/run, /lib/modules and /etc/localtime are links on most nodes.
// Items: M06.
func TestLinksAreFollowedWithinWhatIsAllowed(t *testing.T) {
	n := newNode(t)
	other := t.TempDir()
	n.put(n.dir+"/real", "directory")
	n.put(n.dir+"/real/file", "file")
	n.put(other+"/elsewhere", "directory")
	n.links(map[string]string{
		n.dir + "/relative": "real", n.dir + "/absolute": n.dir + "/real", n.dir + "/chain": "relative", n.dir + "/up": "real/../real",
		n.dir + "/over": "../" + filepath.Base(n.dir) + "/real", n.dir + "/file": "relative/file", n.dir + "/other": other + "/elsewhere",
	})
	n.driver = newDriver(n.layout, n.dir, other)
	for path, to := range map[string]string{
		"relative": "real", "absolute": "real", "chain": "real", "up": "real", "over": "real", "relative/file": "real/file", "file": "real/file", "chain/file": "real/file",
	} {
		kind := "Directory"
		if filepath.Base(to) == "file" {
			kind = "File"
		}
		if err := n.publish(filepath.Join(n.dir, path), kind); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		f, err := hostpath.Open([]string{n.dir, other}, filepath.Join(n.dir, path))
		if err != nil || f.Name() != filepath.Join(n.dir, to) {
			t.Errorf("%s: opened %v, %v, want %s", path, f, err, to)
		}
		if f != nil {
			f.Close()
		}
	}
	if err := n.publish(n.dir+"/other", "Directory"); err != nil {
		t.Errorf("into another allowed directory: %v", err)
	}
	if err := n.publish(n.dir+"/chain/made/here", "DirectoryOrCreate"); err != nil {
		t.Error(err)
	}
	if st, err := os.Lstat(n.dir + "/real/made/here"); err != nil || st.Mode() != os.ModeDir|0o755 {
		t.Errorf("made: %v, %v", st, err)
	}
	all := newDriver(n.layout, "/")
	for _, path := range []string{n.dir + "/chain", n.dir + "/other"} {
		if err := all.Publish(t.Context(), n.volume(path, "Directory"), pod); err != nil {
			t.Errorf("with / allowed: %v", err)
		}
	}
}

// The operator answers for links in the path of an allowed directory, even if a link in
// another one leads there.
func TestLinksOfTheOperatorsOwnPathsAreFollowed(t *testing.T) {
	n := newNode(t)
	outer, target := t.TempDir(), t.TempDir()
	n.put(target+"/data", "directory")
	n.links(map[string]string{outer + "/run": target, n.dir + "/into": outer + "/run/data/x"})
	n.driver = newDriver(n.layout, n.dir, outer+"/run/data")
	for _, path := range []string{outer + "/run/data", n.dir + "/into"} {
		if err := n.publish(path, "DirectoryOrCreate"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := os.Lstat(target + "/data/x"); err != nil {
		t.Error(err)
	}
}

// wantDenied fails the test unless the path is refused with each type, and
// nothing is made in outside.
func (n *node) wantDenied(path, outside string) {
	n.Helper()
	for _, kind := range []string{"", "Directory", "DirectoryOrCreate", "FileOrCreate"} {
		err := n.publish(path, kind)
		if e, ok := errors.AsType[*state.CallError](err); !ok || e.Outcome != state.Refused || !errors.Is(err, hostpath.ErrDenied) {
			n.Errorf("%s, type %q: got %v, want a refusal", path, kind, err)
		}
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) != 0 {
		n.Errorf("%s: made in %s: %v, %v", path, outside, found, err)
	}
}

// C29: an allowed directory below another one may be a container's link. The driver
// follows it no further than other links.
// Attacks: C29.
func TestAttackNestedAllowedDirectoryIsALink(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	n.put(n.dir+"/pod", "directory")
	n.links(map[string]string{n.dir + "/nested": outside, n.dir + "/pod/up": "/", n.dir + "/root": "/"})
	operators := t.TempDir()
	n.links(map[string]string{operators + "/way": n.dir + "/pod/up"})
	for _, allow := range [][]string{
		{n.dir, n.dir + "/nested"}, {n.dir + "/nested", n.dir}, {n.dir, n.dir + "/nested/x"}, {n.dir, n.dir + "/root"}, {n.dir, operators + "/way"},
	} {
		n.driver = newDriver(n.layout, allow...)
		for _, path := range []string{n.dir + "/nested", n.dir + "/nested/x", n.dir + "/nested/x/y", n.dir + "/root" + outside, n.dir + "/pod/up" + outside} {
			n.wantDenied(path, outside)
		}
		if allow[1] == operators+"/way" {
			n.wantDenied(operators+"/way"+outside, outside)
		}
	}
}

// C29: the operator's own links may put one allowed directory below another one, where
// a container may have made it a link.
// Attacks: C29.
func TestAttackDirectoryNestedByLinksIsALink(t *testing.T) {
	n := newNode(t)
	outside, operators, x := t.TempDir(), t.TempDir(), n.dir+"/x"
	n.put(x, "directory")
	n.put(x+"/sub", "directory")
	n.put(x+"/fine", "directory")
	n.links(map[string]string{operators + "/b": x, operators + "/c": x + "/sub", x + "/sub/d": outside})
	for _, allow := range [][]string{
		{operators + "/b", operators + "/c/d"}, {operators + "/c/d", operators + "/b"}, {x, operators + "/c/d"}, {operators + "/b", x + "/sub/d"},
	} {
		n.driver = newDriver(n.layout, allow...)
		for _, path := range []string{operators + "/c/d", operators + "/c/d/y", operators + "/b/sub/d", operators + "/b/sub/d/y", x + "/sub/d", x + "/sub/d/y"} {
			n.wantDenied(path, outside)
		}
		for _, root := range hostpath.Roots(allow) {
			if root == outside {
				t.Errorf("%q: what a container named is a root", allow)
			}
		}
	}
	n.driver = newDriver(n.layout, operators+"/b", operators+"/c/d")
	if err := n.publish(operators+"/b/fine", "Directory"); err != nil {
		t.Errorf("the operator's own link: %v", err)
	}
}

// C30: no link leads out of the allowed directories, however it is written, even if it
// first stays within them or leads back.
// Attacks: C30.
func TestAttackLinkLeadsOutAndBack(t *testing.T) {
	n := newNode(t)
	outside := t.TempDir()
	n.put(n.dir+"/in", "directory")
	n.links(map[string]string{
		n.dir + "/out": outside, n.dir + "/dots": "in/../../" + filepath.Base(outside), n.dir + "/in/back": "../../" + filepath.Base(outside),
		n.dir + "/many": "in/back", n.dir + "/proc": "/proc/self/cwd/..", n.dir + "/fd": "/proc/self/fd", n.dir + "/loop": "loop", n.dir + "/slash": "/",
		n.dir + "/beside": n.dir + "-beside", n.dir + "/through": "out/../" + filepath.Base(n.dir) + "/in",
	})
	n.put(n.dir+"-beside", "directory")
	t.Cleanup(func() { os.Remove(n.dir + "-beside") })
	for _, path := range []string{"out", "dots", "in/back", "many", "proc", "fd/0", "loop", "slash", "slash/etc", "beside", "through", "out/x", "dots/x"} {
		n.wantDenied(filepath.Join(n.dir, path), outside)
		if f, err := hostpath.Open([]string{n.dir}, filepath.Join(n.dir, path)); err == nil {
			f.Close()
			t.Errorf("%s: opened", path)
		}
	}
	if err := n.publish(n.dir+"/loop", ""); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a loop: got %v", err)
	}
}

package subpath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/subpath"
)

// hostPath is the root of a hostPath volume where the operator allows what is below dir.
func hostPath(dir, path string, of corev1.HostPathType) subpath.Root {
	return subpath.Root{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &of}, Allow: []string{dir}}
}

// An error from a helper process has the text that it has in this process, and is the same one for
// errors.Is.
func TestErrorsCrossFromHelpers(t *testing.T) {
	n := newNode(t)
	host := t.TempDir()
	n.must(errors.Join(os.Symlink("/", n.volume+"/out"), os.WriteFile(host+"/file", nil, 0o600), os.Symlink("/etc", host+"/etc")))
	here := subpath.New(n.layout, n.kernel, newHelpers(t, nil, subpath.Helper()))
	for name, tc := range map[string]struct {
		change func(*subpath.Request)
		want   error
	}{
		"missing":          {func(r *subpath.Request) { r.Path, r.ReadOnly = "none", true }, subpath.ErrMissing},
		"leads out":        {func(r *subpath.Request) { r.Path = "out/etc" }, subpath.ErrEscapes},
		"up":               {func(r *subpath.Request) { r.Path = ".." }, subpath.ErrEscapes},
		"no volume":        {func(r *subpath.Request) { r.Root.Path += "-gone" }, fs.ErrNotExist},
		"not allowed":      {func(r *subpath.Request) { r.Root = hostPath(host, "/etc", "") }, hostpath.ErrDenied},
		"a link leads out": {func(r *subpath.Request) { r.Root = hostPath(host, host+"/etc", "") }, unix.ELOOP},
		"of a type": {func(r *subpath.Request) {
			r.Root, r.Whole = hostPath(host, host+"/file", corev1.HostPathDirectory), true
		}, hostpath.ErrType},
		"part of a file":     {func(r *subpath.Request) { r.Root = hostPath(host, host+"/file", "") }, unix.ENOTDIR},
		"hostPath not there": {func(r *subpath.Request) { r.Root = hostPath(host, host+"/none", "") }, fs.ErrNotExist},
	} {
		r := n.request("d")
		tc.change(&r)
		_, err := n.binder.Bind(t.Context(), r)
		_, same := here.Bind(t.Context(), r)
		if !errors.Is(err, tc.want) || !errors.Is(same, tc.want) || err.Error() != same.Error() {
			t.Errorf("%s: got %v from a helper and %v in this process, want %v", name, err, same, tc.want)
		}
	}
	if s := n.helpers.Stats(); s.Helpers != 1 {
		t.Errorf("helpers: got %d, want 1, which has answered", s.Helpers)
	}
}

// A container gets a whole hostPath volume as its source says it, which is made if it is missing, and a
// part of one only if the volume is there.
func TestRootsOfHostPathVolumes(t *testing.T) {
	n := newNode(t)
	host := t.TempDir()
	r := n.request("")
	r.Whole, r.Root = true, hostPath(host, host+"/made", corev1.HostPathDirectoryOrCreate)
	at, err := n.binder.Bind(t.Context(), r)
	n.must(err)
	n.wantSame(at, host+"/made")
	r = n.request("part")
	r.Index, r.Root = 1, hostPath(host, host+"/made", "")
	at, err = n.binder.Bind(t.Context(), r)
	n.must(err)
	n.wantSame(at, filepath.Join(host, "made/part"))
}

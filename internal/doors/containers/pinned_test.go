package containers

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/hostpath"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// A container gets a hostPath as a path, which another container may be able to replace, only where it is a listed directory, or
// at, above or below the node's own directories.
func TestWhichHostPathsAreGivenAsPaths(t *testing.T) {
	g := New(Config{Parts: &Parts{Layout: state.Layout{Root: "/var/lib/kubelet"}}, HostPaths: []string{"/srv", "/var", "/data/app"}})
	for path, want := range map[string]map[string]bool{
		"/srv":                     {"rprivate": true, "rslave": true, "rshared": true},
		"/srv/app":                 {},
		"/data/app":                {"rprivate": true, "rslave": true, "rshared": true},
		"/data/app/sub":            {},
		"/var/lib":                 {"rprivate": true, "rslave": true, "rshared": true}, // above
		"/var/lib/kubelet":         {"rprivate": true, "rslave": true, "rshared": true},
		"/var/lib/kubelet/pods/u":  {"rprivate": true, "rslave": true, "rshared": true},
		"/var/lib/kubelet/plugins": {"rslave": true, "rshared": true}, // a driver mounts below it
		"/var/log":                 {},
	} {
		for _, propagation := range []string{"rprivate", "rslave", "rshared"} {
			v := manager.MountedVolume{Driver: hostpath.Kind, HostPath: path}
			if got := !g.pinned(v, propagation); got != want[propagation] {
				t.Errorf("%s, %s: given as a path: %v, want %v", path, propagation, got, want[propagation])
			}
		}
	}
	if g.pinned(manager.MountedVolume{Driver: local.Kind, HostPath: "/var/lib/kubelet/pods/u/volumes/v"}, "rprivate") {
		t.Error("a volume that is a mount already is mounted once more")
	}
}

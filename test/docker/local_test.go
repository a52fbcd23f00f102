//go:build docker

package docker

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// podman's local driver runs mount(8), so its volumes can be of type csi without a plugin. podman
// unmounts lazily and tells no program: the kernel shows the end of the use.
func TestPodmansLocalDriverMountsByTypeCSI(t *testing.T) {
	harness.MountHelper(t, program)
	r := newRig(t)
	r.startPodman()
	r.must("podman", "volume", "create", "--opt", "type=csi", "--opt", "device=default/web",
		"--opt", "o=class=local,socket="+r.Socket, "web")
	r.podman("run", "-d", "--name", "one", "-v", "web:/data", busybox, "sleep", "1000")
	r.podman("exec", "one", "sh", "-c", "echo kept > /data/f && sync")
	if n := r.called("NodeStageVolume"); n != 1 {
		t.Errorf("staged %d times", n)
	}
	if said := r.Do("", "explain", "pod", "mount.default.web"); !strings.Contains(said, "mount volume default/web") {
		t.Errorf("explain says %q", said)
	}
	r.podman("rm", "-f", "-t", "0", "one")
	r.nothingMounted()
	if got := r.podman("run", "--rm", "-v", "web:/data", busybox, "cat", "/data/f"); got != "kept" {
		t.Errorf("got %q", got)
	}
	r.nothingMounted()
}

// podman's prune removes every volume that no container names, also those of plugins. By default
// the data stays: it is listed under another name. A new volume of the name is empty, and the data is brought back.
func TestPruneKeepsWhatIsRetained(t *testing.T) {
	r := newRig(t)
	r.startPodman()
	r.volumeCreate("podman", "db", "size=64Mi")
	r.volumeCreate("podman", "scratch", "size=64Mi", "reclaim=Delete")
	r.podman("run", "--rm", "-v", "db:/data", busybox, "sh", "-c", "echo kept > /data/f")
	r.nothingMounted()
	r.podman("volume", "prune", "-f")
	if left := r.podman("volume", "ls", "-q"); left != "" {
		t.Errorf("left: %s", left)
	}
	pvs := r.Do("", "get", "pv")
	if !strings.Contains(pvs, "default/db") || strings.Contains(pvs, "default/scratch") {
		t.Errorf("volumes after the prune:\n%s", pvs)
	}
	if n := r.called("DeleteVolume"); n != 1 {
		t.Errorf("%d volumes are deleted, want that of scratch", n)
	}
	kept, err := r.API.KeptNamed(t.Context())
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept: %+v, %v", kept, err)
	}
	r.volumeCreate("podman", "db", "size=64Mi")
	r.Do("", "volume", "restore", kept[0].Name, "old")
	r.podman("volume", "reload")
	for volume, want := range map[string]string{"db": "", "old": "f"} {
		if got := r.podman("run", "--rm", "-v", volume+":/data", busybox, "ls", "/data"); got != want {
			t.Errorf("volume %s has %q, want %q", volume, got, want)
		}
	}
	r.nothingMounted()
}

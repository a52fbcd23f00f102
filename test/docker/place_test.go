//go:build docker

package docker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/failpoint"
)

// TestKilledAtEveryPlaceUnderPodman kills csi-volmgr once at every place in the code where the life
// of a volume changes something, within its steps instead of between them. No running container
// loses its volume or its data, and in the end nothing is left.
func TestKilledAtEveryPlaceUnderPodman(t *testing.T) { killedAtEveryPlace(t, "podman") }

// TestKilledAtEveryPlaceUnderDocker does the same with dockerd.
func TestKilledAtEveryPlaceUnderDocker(t *testing.T) { killedAtEveryPlace(t, "docker") }

// killedAtEveryPlace mostly waits, so it runs in parallel.
func killedAtEveryPlace(t *testing.T, engine string) {
	t.Parallel()
	dir := t.TempDir()
	binary, _, err := failpoint.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	arm, once := filepath.Join(dir, "arm"), filepath.Join(dir, "once")
	r := newRigOf(t, setup{plugin: "under-" + engine, program: binary, vars: []string{
		"CSI_VOLMGR_FAILPOINT_ARM=" + arm, "CSI_VOLMGR_FAILPOINT_ONCE=" + once,
	}})
	if engine == "docker" {
		r.startDocker("--live-restore")
	} else {
		r.startPodman()
	}
	// dockerd asks all plugins for a name that it has no record of, also those of other rigs.
	l := &life{rig: r, engine: engine, volume: "placed-in-" + engine}
	l.killed.Store(true)
	l.meanwhile = func(container string) {
		for range 2 { // kills may take up all of the first one
			l.do("cp", "/bin/busybox", container+":/data/copied")
		}
		r.up()
		r.lingered(l.volume)
	}
	if err := os.WriteFile(arm, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.live(nil)
	r.usesEnd()
	l.do("volume", "rm", l.volume)
	if err := os.Remove(arm); err != nil {
		t.Fatal(err)
	}
	r.up()
	r.allGo([]*life{l})
	r.alternate()
	died(t, once)
}

// died fails the test if no process died at one of the steps between the request and the driver.
func died(t *testing.T, once string) {
	t.Helper()
	b, err := os.ReadFile(once)
	if err != nil {
		t.Fatal(err)
	}
	places := strings.Split(strings.TrimSpace(string(b)), "\n")
	t.Logf("killed at %d places: %q", len(places), places)
	for _, want := range []string{
		"docker/routes.go mount Mount after", "docker/routes.go unmount Unmount before", "docker/routes.go remove Remove before",
		"CommitBucket after", "CreateVolume after", "NodeStageVolume after", "NodePublishVolume before",
		"NodeUnpublishVolume after", "NodeUnstageVolume before",
	} {
		if !slices.ContainsFunc(places, func(p string) bool { return strings.HasSuffix(p, want) }) {
			t.Errorf("no process died at %s", want)
		}
	}
}

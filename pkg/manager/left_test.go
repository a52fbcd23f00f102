package manager

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// What stays mounted of a forgotten volume counts as in use, over restarts, until it is unmounted or has a record again.
func TestForgottenVolumeIsInUseWhileItIsMounted(t *testing.T) {
	id := state.SharedID("d", "v")
	for name, end := range map[string]func(l *life){
		"it is unmounted": func(l *life) { l.MountsSeen(oneLayer()) },
		"a pod has it as usual": func(l *life) {
			l.SetPod(podWant("u", "v"))
			rest()
			l.RemovePod("u")
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			h, d := newFakeNode(t), newDisk()
			told := 0
			config := func(c *Config) {
				places(c)
				c.OnUnrecorded = func() { told++ }
			}
			l := live(t, h, d, config)
			l.up(h)
			l.SetPod(podWant("u", "v", "w"))
			mounted(t, l, "u")
			all := oneLayer("/stage/v", "/pods/u/v", "/stage/w", "/pods/u/w")
			l.MountsSeen(all)
			l.DriverDown("d", "gone")
			l.RemovePod("u")
			rest()
			if err := l.Forget(t.Context(), id, "/stage/v", "/pods/u/v"); err != nil {
				t.Fatal(err)
			}
			used := func(at string) {
				t.Helper()
				if by := l.UsedBy(id, "v", "/stage/v"); !strings.Contains(by, "umount /pods/u/v /stage/v") {
					t.Errorf("%s: %s: used by %q", name, at, by)
				}
			}
			used("forgotten")
			l.MountsSeen(all)
			rest()
			used("with a new mount table")
			if err := l.stop(); err != nil {
				t.Fatal(err)
			}
			l = live(t, h, d, config, sources("s"))
			l.SourceSynced("s")
			l.MountsSeen(all)
			rest()
			used("after a restart")
			if by := l.UsedBy(state.SharedID("d", "other"), "other", "/stage/other"); by != "" {
				t.Errorf("%s: another volume is used by %q", name, by)
			}
			l.up(h)
			before := told
			end(l)
			rest()
			if by := l.UsedBy(id, "v", "/stage/v"); by != "" || told == before {
				t.Errorf("%s: used by %q, told %d times", name, by, told-before)
			}
		})
	}
}

// A volume that was not mounted when its record was forgotten is not in use. A mount table that is older than the end of
// a mount does not make it so either.
func TestWhatIsNotMountedIsNotInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		l := live(t, h, d, places)
		l.up(h)
		l.SetPod(podWant("u", "v"))
		mounted(t, l, "u")
		all := oneLayer("/stage/v", "/pods/u/v")
		l.MountsSeen(all)
		l.RemovePod("u")
		rest()
		l.MountsSeen(all)
		rest()
		if by := l.UsedBy(state.SharedID("d", "v"), "v", "/stage/v"); by != "" {
			t.Errorf("unmounted, used by %q", by)
		}
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		l = live(t, h, d, places)
		l.up(h)
		l.SetPod(podWant("u", "v"))
		mounted(t, l, "u")
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		l = live(t, h, d, places, sources("s"))
		l.up(h)
		l.SourceSynced("s") // the pod is gone before the first look
		rest()
		l.MountsSeen(all)
		rest()
		if by := l.UsedBy(state.SharedID("d", "v"), "v", "/stage/v"); by != "" {
			t.Errorf("unmounted at the start, used by %q", by)
		}
	})
}

// Every path of a driver's volume tells whose it is: the handle's hash in a stage, or the PersistentVolume's name.
func TestPathsOfForgottenVolumes(t *testing.T) {
	layout := state.Layout{Root: "/root"}
	id, name := state.SharedID("d", "h"), "pvc-1"
	stages := []string{
		layout.StagePath(state.Filesystem, "d", "h", name), layout.StagePath(state.Block, "d", "h", name),
	}
	for path, used := range map[string]bool{
		stages[0]: true,
		stages[1]: true,
		layout.Target(state.Filesystem, "u", name):                         true,
		layout.Target(state.Block, "u", name):                              true,
		layout.Target(state.Filesystem, "u", "pvc-2"):                      false,
		layout.StagePath(state.Filesystem, "d", "other", name):             false,
		layout.StagePath(state.Filesystem, "other", "h", name):             false,
		layout.BuiltinTarget("kubernetes.io/nfs", "u", name):               false, // an in-tree volume of that name
		layout.BuiltinStagePath("kubernetes.io/iscsi", state.VolumeID(id)): false,
		filepath.Join("/root/pods/u/volume-subpaths", name, "c/0"):         false,
	} {
		synctest.Test(t, func(t *testing.T) {
			l := live(t, newFakeNode(t), newDisk(), func(c *Config) { c.Place = layout.Place })
			l.MountsSeen(oneLayer(path))
			rest()
			if by := l.UsedBy(id, name, stages...); (by != "") != used || used && !strings.Contains(by, path) {
				t.Errorf("mounted at %s: used by %q, want a user: %v", path, by, used)
			}
		})
	}
}

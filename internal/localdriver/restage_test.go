package localdriver

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// If a stage was unmounted by hand while pods have the volume, the driver stages it again:
// the new stage shows what the pods write, and teardown works as usual.
//
// Faults: A162.
func TestAStageUnmountedByHandIsMadeAgainUnderPods(t *testing.T) {
	for _, fs := range []string{fsXFS, fsExt4, fsBtrfs} {
		for _, readOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, read-only %v", fs, readOnly), func(t *testing.T) {
				r := newRig(t)
				v := r.create(createReq("v", minBtrfsBytes, fsCap(fs, multi)))
				if err := v.stageErr(); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, v.staging()+"/a", "of before")
				target := r.path("target-" + v.id)
				if err := v.publishErr(target, readOnly); err != nil {
					t.Fatal(err)
				}
				if err := unix.Unmount(v.staging(), 0); err != nil {
					t.Fatal(err)
				}
				if err := v.stageErr(); err != nil {
					t.Fatalf("NodeStageVolume again: %v", err)
				}
				wantFile(t, v.staging()+"/a", "of before")
				mustWrite(t, v.staging()+"/b", "of after")
				wantFile(t, target+"/b", "of after")
				second := r.path("second")
				if err := v.publishErr(second, false); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, second+"/c", "of the second")
				if err := v.unpublishErr(second); err != nil {
					t.Fatal(err)
				}
				v.down()
				if devs, err := findLoops(r.d.store.dataPath(v.id, typeImage)); err != nil || len(devs) != 0 {
					closeLoops(devs)
					t.Errorf("%d loop devices are left, %v", len(devs), err)
				}
			})
		}
	}
}

// If others than the pods have a device, the driver leaves it to them.
func TestADeviceInUseByOthersIsNotStaged(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", minExt4Bytes, fsCap(fsExt4, multi)))
	if err := v.stageErr(); err != nil {
		t.Fatal(err)
	}
	foreign := r.path("foreign")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(v.staging(), foreign, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(v.staging(), 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "stage", v.stageErr(), codes.Aborted)
	if err := unix.Unmount(foreign, 0); err != nil {
		t.Fatal(err)
	}
	if err := v.stageErr(); err != nil {
		t.Error(err)
	}
}

// A volume whose stage was unmounted by hand grows through the pod's mount, and not the file system of the
// node at the path of the stage.
func TestAVolumeWhoseStageIsUnmountedGrowsAtItsTarget(t *testing.T) {
	r := reflinkRig(t) // the node's file system is xfs, too
	v := r.create(createReq("v", 64*mib, fsCap(fsXFS, multi)))
	target := v.up()
	if err := unix.Unmount(v.staging(), 0); err != nil {
		t.Fatal(err)
	}
	node := statfsTotal(t, r.dir)
	v.expand(128 * mib)
	if err := v.nodeExpandErr(target); err != nil {
		t.Fatal(err)
	}
	wantSize(t, target, 128*mib)
	if now := statfsTotal(t, r.dir); now != node {
		t.Errorf("the file system of the node has %d bytes, and had %d", now, node)
	}
}

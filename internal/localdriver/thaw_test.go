package localdriver

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// leaveFrozen freezes a staged volume as a driver that is killed during a copy.
func leaveFrozen(t *testing.T, v vol) {
	t.Helper()
	a := v.r.d.store.attachment(v.id)
	a.Frozen = true
	if err := errors.Join(v.r.d.store.putAttachment(a), freeze(a.Stage.Path)); err != nil {
		t.Fatal(err)
	}
}

// The stage of a volume that a killed driver left frozen may be unmounted by hand. The kernel keeps the freeze:
// the next driver thaws the volume where its pod has it, or where it is staged next.
func TestAFrozenVolumeWhoseMountsAreGoneIsThawed(t *testing.T) {
	for _, fs := range []string{fsXFS, fsExt4, fsBtrfs} {
		t.Run(fs+", stage unmounted", func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", minBtrfsBytes, fsCap(fs, multi)))
			target := v.up()
			leaveFrozen(t, v)
			if err := unix.Unmount(v.staging(), 0); err != nil {
				t.Fatal(err)
			}
			r.restart()
			wantThawed(t, target)
		})
		t.Run(fs+", all unmounted", func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", minBtrfsBytes, fsCap(fs, multi)))
			target := v.up()
			leaveFrozen(t, v)
			for _, path := range []string{target, v.staging()} {
				if err := unix.Unmount(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			r.restart()
			if !r.d.store.attachment(v.id).Frozen {
				t.Error("the driver forgot the freeze before it ended")
			}
			v.up()
			wantThawed(t, v.staging())
			if r.d.store.attachment(v.id).Frozen {
				t.Error("the record still says frozen")
			}
		})
	}
}

// A frozen file system without a mount keeps its loop device: the volume could not be deleted.
func TestAFrozenVolumeIsThawedBeforeItIsUnstaged(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap(fsExt4, multi)))
	v.up()
	leaveFrozen(t, v)
	v.down()
	if there, err := isAttached(r.d.store.dataPath(v.id, typeImage)); there || err != nil {
		t.Errorf("the image is attached: %v, %v", there, err)
	}
}

// The same, if someone unmounted it by hand before.
func TestAFrozenVolumeThatIsMountedNowhereIsUnstaged(t *testing.T) {
	for _, fs := range []string{fsXFS, fsExt4, fsBtrfs} {
		t.Run(fs, func(t *testing.T) {
			r := newRig(t)
			v := r.create(createReq("v", minBtrfsBytes, fsCap(fs, multi)))
			target := v.up()
			leaveFrozen(t, v)
			for _, path := range []string{target, v.staging()} {
				if err := unix.Unmount(path, 0); err != nil {
					t.Fatal(err)
				}
			}
			v.down()
			if there, err := isAttached(r.d.store.dataPath(v.id, typeImage)); there || err != nil {
				t.Errorf("the image is attached: %v, %v", there, err)
			}
		})
	}
}

// What a freeze blocks would also block the end of the machine. A driver that stops waits only a while for
// copies, and starts again only if it is wanted.
func TestAFreezeEndsWithTheDriver(t *testing.T) {
	r := newRig(t)
	v := r.create(createReq("v", 32*mib, fsCap(fsExt4, multi)))
	target := v.up()
	leaveFrozen(t, v)
	staging := v.staging()
	r.stop()
	wantThawed(t, staging)
	if err := os.WriteFile(target+"/file", []byte("text"), 0o600); err != nil {
		t.Error(err)
	}
	r.start()
}

package localdriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
)

// writeOrThaw writes to a file below a mounted volume. If the file system stays frozen, it fails the test and thaws.
func writeOrThaw(t *testing.T, v vol, name string) {
	t.Helper()
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(v.r.path("target-"+v.id, name), []byte("text"), 0o600) }()
	select {
	case err := <-written:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("the file system of %s stays frozen", v.id)
		if err := errors.Join(thaw(v.staging()), <-written); err != nil {
			t.Error(err)
		}
	}
}

// The freeze of all volumes ends at its limit even if the copy hangs; the call fails, since the copies are not of
// one moment.
func TestAFreezeEndsThoughTheCopyHangs(t *testing.T) {
	r := newRig(t)
	v, w := r.create(createReq("v", 32*mib, fsCap("ext4", multi))), r.create(createReq("w", 32*mib, fsCap("ext4", multi)))
	v.up()
	w.up()
	r.d.maxFreeze = 2 * time.Second // enough for the freeze itself
	begun := false
	err := r.d.whileFrozen(r.ctx, []volume{{ID: v.id, Type: typeImage}, {ID: w.id, Type: typeImage}}, func(context.Context) error {
		begun = true
		writeOrThaw(t, v, "a") // like a copy that waits for something that the freeze blocks
		writeOrThaw(t, w, "a")
		return nil
	})
	wantCode(t, "a copy that hangs", toStatus(err), codes.FailedPrecondition)
	if !begun {
		t.Error("the volumes were not held still")
	}
	for _, x := range []vol{v, w} {
		wantThawed(t, x.staging())
		if r.d.store.attachment(x.id).Frozen {
			t.Errorf("the record of %s still says frozen", x.id)
		}
	}
}

// The freeze of a volume ends at its limit even if the freeze of the next volume hangs.
func TestAFreezeEndsThoughTheNextFreezeHangs(t *testing.T) {
	h := &freezes{}
	var resumed []string
	hold := func(name string) {
		h.add(func() error { resumed = append(resumed, name); return errors.New(name) })
	}
	hold("a")
	hold("b")
	if err := h.end(); err == nil || err.Error() != "b\na" {
		t.Errorf("the end is %v, want what both say, the last first", err)
	}
	hold("late")
	if got := strings.Join(resumed, " "); got != "b a late" {
		t.Errorf("resumed %s, want b a, and late at once", got)
	}
	if err := h.end(); err == nil || err.Error() != "b\na\nlate" || len(resumed) != 3 {
		t.Errorf("the end again is %v, and %q were resumed, want each once", err, resumed)
	}
}

// A copy that takes longer than the limit of a freeze is refused, for one volume and for a group, and leaves nothing;
// without reflink the error says what to do.
func TestACopyThatTakesLongerThanAFreezeIsRefused(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		v, w := r.create(createReq("v", 32*mib, fsCap("ext4", multi))), r.create(createReq("w", 32*mib, fsCap("ext4", multi)))
		v.up()
		w.up()
		can, err := canReflink(r)
		if err != nil {
			t.Fatal(err)
		}
		r.d.maxFreeze = time.Nanosecond
		_, err = r.CreateVolumeGroupSnapshot(r.ctx, groupReq("s", v.id, w.id))
		errs := []error{err}
		if can {
			r.snap("one", v.id) // a reflink copy is of one moment without a freeze
		} else {
			_, err = r.CreateSnapshot(r.ctx, &csi.CreateSnapshotRequest{Name: "s", SourceVolumeId: v.id})
			errs = append(errs, err)
		}
		for _, err := range errs {
			wantCode(t, "a copy that takes too long", err, codes.FailedPrecondition)
			if says := strings.Contains(err.Error(), "reflink") && strings.Contains(err.Error(), "xfs or btrfs"); says == can {
				t.Errorf("the error is %v; can the file system reflink? %v", err, can)
			}
		}
		for _, x := range []vol{v, w} {
			writeOrThaw(t, x, "a")
		}
		if left, _ := filepath.Glob(r.path("state", "*", "*"+nameHash("s")+"*")); len(left) > 0 {
			t.Errorf("left %q", left)
		}
		v.down() // no writes any more, so no freeze
		w.down()
		r.cut("s", v.id, w.id)
		r.snap("s", v.id)
	})
}

// If only one volume of a group is in use, the driver freezes that one alone; with reflink, which clones at once, none.
func TestAGroupHoldsNoVolumeThatIsStillAnyway(t *testing.T) {
	rigs(t, func(t *testing.T, r *rig) {
		can, err := canReflink(r)
		if err != nil {
			t.Fatal(err)
		}
		req := createReq("v", 32*mib, fsCap("ext4", multi))
		v, idle := r.create(req), r.create(directoryReq("idle"))
		mustWrite(t, v.up()+"/file", "text")
		if can {
			r.d.maxFreeze = time.Nanosecond
		}
		g := r.cut("g", idle.id, v.id, r.create(createReq("w", 32*mib, fsCap("ext4", multi))).id)
		wantFile(t, r.restore(members(g)[1], req)+"/file", "text")
	})
}

// A clone made before the freeze is replaced by one made during it.
func TestACopyIsOfTheMomentOfTheFreeze(t *testing.T) {
	r := reflinkRig(t)
	var parts []part
	for _, name := range []string{"v", "w"} {
		v := r.create(createReq(name, 32*mib, fsCap("ext4", multi)))
		target := v.up()
		p, inUse, err := r.d.openPart(r.ctx, copyOf{from: volume{ID: v.id, Type: typeImage}, id: newID("snap", "s")})
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		if !inUse || !p.cloned {
			t.Errorf("in use %v, cloned %v, want both", inUse, p.cloned)
		}
		fill(t, target, mib)
		if err := syncFS(target); err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
	}
	if err := r.d.copyInUse(r.ctx, parts); err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		holdsFiller := exec.Command("debugfs", "-R", "stat /filler", p.target.Name())
		if out, err := holdsFiller.CombinedOutput(); err != nil || !strings.Contains(string(out), fmt.Sprint("Size: ", mib)) {
			t.Errorf("the copy of %s does not hold what was written before the freeze: %v: %s", p.from.ID, err, out)
		}
	}
}

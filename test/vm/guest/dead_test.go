//go:build vm

package guest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The portal of a target is silent, and a volume of it is staged: the kernel holds the thread
// that scans for its disk. That thread is a helper's. A volume of another portal comes and goes
// meanwhile, and when the portal is back, so is the volume with its data.
//
// Items: M11.
func TestDeadISCSIPortalHangsAHelperAlone(t *testing.T) {
	const iqn = "iqn.2024-01.test.csi-volmgr:dead"
	gain(t, farPortal)
	serveISCSI(t, iqn, false, backstore(t, "far", 64), backstore(t, "stays", 64), backstore(t, "near", 64))
	mkdir(t, filepath.Join(configFS, "iscsi", iqn, "tpgt_1", "np", farPortal+":3260"))
	n := newISCSI(t)
	src := corev1.ISCSIVolumeSource{TargetPortal: farPortal, IQN: iqn}
	far := n.volume("far", src)
	src.Lun = 1
	stays := n.volume("stays", src) // keeps the session
	src.Lun, src.TargetPortal = 2, "127.0.0.1"
	near := n.volume("near", src)
	write(t, n.up(far)+"/file", "written before")
	n.up(stays)
	n.down(far)
	n.volumes = append(n.volumes, far)

	lose(t, farPortal)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	err := n.driver.Stage(ctx, far)
	t.Logf("staged from a silent portal: %v", err)
	if err == nil {
		t.Error("staged")
	}
	// The program could not exit while one of its own threads is blocked.
	if here, all := blockedIn(t, "self"), blocked(t); here != 0 || all == 0 {
		t.Errorf("%d threads of this process are blocked, and %d with its helpers; want 0, and one or more", here, all)
	}
	write(t, n.up(near)+"/file", "meanwhile")
	n.down(near)

	regain(t, farPortal)
	n.up(far)
	if got := read(t, far.Mounts[pod].Target+"/file"); got != "written before" {
		t.Errorf("after the portal is back: %q", got)
	}
	n.down(far)
	n.down(stays)
	wantNoISCSI(t, iqn)
	await(t, "nothing to hang", func() bool { return blocked(t) == 0 })
}

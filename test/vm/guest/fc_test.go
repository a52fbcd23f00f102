//go:build vm

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/away"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// colons writes a name of 16 digits in the format of the target's configuration.
func colons(name string) string {
	var pairs []string
	for i := 0; i < len(name); i += 2 {
		pairs = append(pairs, name[i:i+2])
	}
	return strings.Join(pairs, ":")
}

// serveFC makes a target on one end of a pair of Ethernet devices and an initiator
// on the other (FCoE in VN2VN mode), with the disks as the target's units. It
// returns the name of the target's port.
func serveFC(t *testing.T, disks ...string) (port string) {
	t.Helper()
	for _, module := range []string{"veth", "fcoe", "tcm_fc", "scsi_transport_fc"} {
		sh(t, "modprobe", module)
	}
	sh(t, "ip", "link", "add", "near", "mtu", "2500", "type", "veth", "peer", "name", "far", "mtu", "2500")
	sh(t, "ip", "link", "set", "far", "up")
	write(t, "/sys/module/libfcoe/parameters/create_vn2vn", "far")
	var hosts []string
	await(t, "the target's adapter", func() bool {
		hosts, _ = filepath.Glob("/sys/class/fc_host/host*")
		return len(hosts) == 1
	})
	port = strings.TrimPrefix(read(t, hosts[0]+"/port_name"), "0x")
	mine := "2000" + strings.ReplaceAll(read(t, "/sys/class/net/near/address"), ":", "")
	group := mkdir(t, filepath.Join(configFS, "fc", colons(port), "tpgt_1"))
	for i, dir := range disks {
		lun := mkdir(t, fmt.Sprintf("%s/lun/lun_%d", group, i))
		link(t, dir, lun+"/disk")
		link(t, lun, mkdir(t, filepath.Join(group, "acls", colons(mine), fmt.Sprintf("lun_%d", i)))+"/unit")
	}
	// The link comes up only after its adapter exists: a frame that arrives before
	// crashes libfcoe of Linux 6.1.
	write(t, "/sys/module/libfcoe/parameters/create_vn2vn", "near")
	await(t, "the initiator's adapter", func() bool { return entries(t, "/sys/class/fc_host/host*") == 2 })
	sh(t, "ip", "link", "set", "near", "up")
	return port
}

// A disk behind a target's port is staged, written to and removed with its device,
// and a scan finds it again. Another disk is a raw block volume, and grows.
//
// Items: M12.
func TestFibreChannel(t *testing.T) {
	port := serveFC(t, backstore(t, "fcdisk", 64), backstore(t, "fcraw", 64))
	await(t, "the target's port", func() bool {
		ports, _ := filepath.Glob("/sys/class/fc_remote_ports/*/port_name")
		for _, file := range ports {
			if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == "0x"+port {
				id, err := os.ReadFile(filepath.Join(filepath.Dir(file), "scsi_target_id"))
				return err == nil && strings.TrimSpace(string(id)) != "-1"
			}
		}
		return false
	})
	l := layout(t)
	d := away.New(away.Config{
		Kind: fc.Kind, Layout: l, Helpers: newHelpers(t), Volumes: func() []state.Volume { return nil },
	})
	t.Run("file system", func(t *testing.T) { fcFiles(t, d, staged(t, l, fc.Kind, "data", unit(port, 0)), 0) })
	t.Run("raw block", func(t *testing.T) {
		v := staged(t, l, fc.Kind, "raw", unit(port, 1))
		v.Spec.Mode = state.Block
		fcBlock(t, d, v, 1)
	})
}

func unit(port string, lun int32) corev1.FCVolumeSource {
	return corev1.FCVolumeSource{TargetWWNs: []string{port}, Lun: &lun}
}

func fcUp(t *testing.T, d *away.Driver, v state.Volume) string {
	t.Helper()
	stage(t, d, v)
	if err := d.Publish(t.Context(), v, pod); err != nil {
		t.Fatal(err)
	}
	return v.Mounts[pod].Target
}

func fcDown(t *testing.T, d *away.Driver, v state.Volume, lun int) {
	t.Helper()
	if err := errors.Join(d.Unpublish(t.Context(), v, pod), d.Unstage(t.Context(), v)); err != nil {
		t.Fatal(err)
	}
	await(t, "the device goes", func() bool {
		return entries(t, fmt.Sprintf("/sys/class/scsi_device/*:*:*:%d/device/block/*", lun)) == 0
	})
}

func fcFiles(t *testing.T, d *away.Driver, v state.Volume, lun int) {
	for round := range 2 {
		dir := fcUp(t, d, v)
		if round == 0 {
			write(t, dir+"/file", "over fibre channel")
		}
		if got := read(t, dir+"/file"); got != "over fibre channel" {
			t.Errorf("round %d: %q", round, got)
		}
		t.Logf("mounted: %s", mountOf(t, dir))
		fcDown(t, d, v, lun)
	}
}

func fcBlock(t *testing.T, d *away.Driver, v state.Volume, lun int) {
	node := fcUp(t, d, v)
	useBlock(t, node, "/fcraw.img", "raw over fibre channel")
	grow(t, "fcraw", 128)
	if size, err := d.Expand(t.Context(), v, pod, 128<<20); err != nil || size != 128<<20 {
		t.Errorf("grown: %d, %v", size, err)
	}
	wantSize(t, node, 128<<20)
	fcDown(t, d, v, lun)
	node = fcUp(t, d, v)
	if got := readAt(t, node, 1<<20, len("raw over")); got != "raw over" {
		t.Errorf("the second time: %q", got)
	}
	fcDown(t, d, v, lun)
}

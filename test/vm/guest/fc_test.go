//go:build vm

package guest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/intree/disk"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/fc"
	"github.com/csi-volmgr/csi-volmgr/pkg/intree/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// colons writes a name of 16 digits as the target's configuration has it.
func colons(name string) string {
	var pairs []string
	for i := 0; i < len(name); i += 2 {
		pairs = append(pairs, name[i:i+2])
	}
	return strings.Join(pairs, ":")
}

// serveFC makes a target on one end of a pair of Ethernet devices and an
// initiator on the other (FCoE in VN2VN mode), with a disk as unit 0. It returns
// the name of the target's port.
func serveFC(t *testing.T, dir string) (port string) {
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
	lun := mkdir(t, group+"/lun/lun_0")
	link(t, dir, lun+"/disk")
	link(t, lun, mkdir(t, filepath.Join(group, "acls", colons(mine), "lun_0"))+"/unit")
	// Up only when its adapter is made: a frame that comes in meanwhile crashes
	// libfcoe of Linux 6.1.
	write(t, "/sys/module/libfcoe/parameters/create_vn2vn", "near")
	await(t, "the initiator's adapter", func() bool { return entries(t, "/sys/class/fc_host/host*") == 2 })
	sh(t, "ip", "link", "set", "near", "up")
	return port
}

// A disk behind a target's port comes, is written, goes with its device, and is
// found again by a scan.
func TestFibreChannel(t *testing.T) {
	port := serveFC(t, backstore(t, "fcdisk", 64))
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
	l, lun := layout(t), int32(0)
	d := fc.New(fc.Config{
		Stager:     disk.Stager{Layout: l, Kernel: mount.New(l.Root), Host: disk.NewHost(new(program.Runner).Run)},
		Volumes:    func() []state.Volume { return nil },
		DeviceTime: patience,
	})
	v := staged(t, l, fc.Kind, "data", corev1.FCVolumeSource{TargetWWNs: []string{port}, Lun: &lun})
	for round := range 2 {
		if err := d.Stage(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if err := d.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		file := v.Mounts[pod].Target + "/file"
		if round == 0 {
			write(t, file, "over fibre channel")
		}
		if got := read(t, file); got != "over fibre channel" {
			t.Errorf("round %d: %q", round, got)
		}
		t.Logf("mounted: %s", mountOf(t, v.Mounts[pod].Target))
		if err := errors.Join(d.Unpublish(t.Context(), v, pod), d.Unstage(t.Context(), v)); err != nil {
			t.Fatal(err)
		}
		await(t, "the device goes", func() bool { return entries(t, "/sys/block/sd*") == 0 })
	}
}

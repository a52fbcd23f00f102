package fc_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/disk"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/fc"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest/disktest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

const (
	wwid   = "naa.6001405aaaaaaaaaaaaaaaaaaaaaaaaa"
	pod    = state.PodUID("7f3c2a10-0000-4000-8000-000000000001")
	mkfs   = "mkfs.ext4 -F -q -m 0 -E nodiscard /dev/sda"
	byUnit = `{"targetWWNs": ["50:06:0E:80:16:70:21:AA", "50060e80167021bb"], "lun": 2}`
	byName = `{"wwids": ["36001405aaaaaaaaaaaaaaaaaaaaaaaaa"]}`
)

// node is a node with two adapters; each sees a port of the target.
type node struct {
	*disktest.Node
	volumes []state.Volume
	driver  *fc.Driver
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{Node: disktest.New(t)}
	for host, port := range map[int]string{3: "0x50060e80167021aa", 4: "0x50060e80167021bb", 5: "0x50060e80167021cc"} {
		rport := fmt.Sprintf("rport-%d:0-7", host)
		n.Set(port, "class", "fc_remote_ports", rport, "port_name")
		n.Set("1", "class", "fc_remote_ports", rport, "scsi_target_id")
		n.Set("", "class", "scsi_host", fmt.Sprintf("host%d", host), "scan")
	}
	n.Set("-1", "class", "fc_remote_ports", "rport-3:0-8", "scsi_target_id") // another adapter, which sees no target
	n.driver = fc.New(fc.Config{Stager: n.Stager(), Volumes: func() []state.Volume { return n.volumes }, DeviceTime: 100 * time.Millisecond})
	return n
}

// path makes name the device of a unit behind a host's port.
func (n *node) path(name string, host, lun int) {
	n.Helper()
	n.Set("", "class", "scsi_device", fmt.Sprintf("%d:0:1:%d", host, lun), "device", "block", name, "uevent")
}

func (n *node) want(what string, want ...string) {
	n.Helper()
	if got := n.Calls(); !slices.Equal(got, want) {
		n.Errorf("%s: run %q, want %q", what, got, want)
	}
}

func (n *node) scanned() (hosts []string) {
	n.Helper()
	for _, host := range []string{"host3", "host4", "host5"} {
		if told := n.Attribute("class", "scsi_host", host, "scan"); told != "" {
			hosts = append(hosts, host+": "+told)
		}
	}
	return hosts
}

// By unit and by name: the driver uses an existing path without a scan, and removes it
// with the volume.
//
// Items: M12.
func TestDiskOfBothWaysToNameIt(t *testing.T) {
	for _, config := range []string{byUnit, byName} {
		n := newNode(t)
		n.Disk(wwid, "sda")
		n.path("sda", 3, 2)
		v := n.Volume(fc.Kind, "data", config, pod)
		for range 2 {
			if err := n.driver.Stage(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		n.want(config, mkfs)
		if got := n.scanned(); len(got) != 0 {
			t.Errorf("scanned %q", got)
		}
		if err := n.driver.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(v.Mounts[pod].Target, "file"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if err := errors.Join(n.driver.Unpublish(t.Context(), v, pod), n.driver.Unstage(t.Context(), v)); err != nil {
			t.Fatal(err)
		}
		if got := n.Attribute("block", "sda", "device", "delete"); got != "1" {
			t.Errorf("%s: told %q, want the device deleted", config, got)
		}
		n.want("unstage")
	}
}

// A volume that never found its disk did not mount it: the disk, which an operator may
// have brought, stays.
func TestDiskThatWasNeverStagedStays(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.path("sda", 3, 2)
	if err := n.driver.Unstage(t.Context(), n.Volume(fc.Kind, "data", byUnit, pod)); err != nil {
		t.Fatal(err)
	}
	if got := n.Attribute("block", "sda", "device", "delete"); got != "" {
		t.Errorf("told %q", got)
	}
}

// The volume's file system is mounted with the label that its pod requests.
//
// Items: Q05.
func TestAVolumeIsMountedWithItsLabel(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.path("sda", 3, 2)
	n.WantLabel(func(v state.Volume) error { return n.driver.Stage(t.Context(), v) }, n.Volume(fc.Kind, "data", byUnit, pod))
}

// The driver scans for a missing disk at the volume's ports only; if the source names
// no ports, at all ports.
//
// Items: M12.
func TestScanAsksThePortsOfTheVolume(t *testing.T) {
	for config, want := range map[string][]string{
		byUnit: {"host3: 0 1 2", "host4: 0 1 2"},
		byName: {"host3: 0 1 -", "host4: 0 1 -", "host5: 0 1 -"},
	} {
		n := newNode(t)
		n.Disk(wwid+"b", "sdz") // another volume's
		n.path("sdz", 5, 2)
		if err := n.driver.Stage(t.Context(), n.Volume(fc.Kind, "data", config, pod)); err == nil || !strings.Contains(err.Error(), "no device") {
			t.Errorf("%s: got %v", config, err)
		}
		if got := n.scanned(); !slices.Equal(got, want) {
			t.Errorf("%s: scanned %q, want %q", config, got, want)
		}
		n.want(config)
	}
}

// Items: M12.
func TestMultipathDeviceIsChosen(t *testing.T) {
	n := newNode(t)
	device := n.Disk(wwid, "sda", "sdb")
	n.path("sda", 3, 2)
	n.path("sdb", 4, 2)
	n.Gathered(device, "dm-3", "mpathb", "sda", "sdb")
	v := n.Volume(fc.Kind, "data", byUnit, pod)
	if err := n.driver.Stage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.want("stage", strings.Replace(mkfs, "sda", "dm-3", 1))
	n.Programs["multipath"] = func([]string) error { return nil }
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.want("unstage", "multipath -f mpathb")
	for _, name := range []string{"sda", "sdb"} {
		if got := n.Attribute("block", name, "device", "delete"); got != "1" {
			t.Errorf("%s: told %q", name, got)
		}
	}
}

func TestPortsThatLeadToDifferentDisksAreRefused(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.Disk(wwid+"b", "sdb")
	n.path("sda", 3, 2)
	n.path("sdb", 4, 2)
	if err := n.driver.Stage(t.Context(), n.Volume(fc.Kind, "data", byUnit, pod)); !errors.Is(err, disk.ErrIdentity) {
		t.Errorf("got %v", err)
	}
	n.want("stage")
}

// A disk that another volume in the journal shares stays, and so does a path that is
// another disk now.
func TestDiskThatIsNotThisVolumesAloneStays(t *testing.T) {
	for name, change := range map[string]func(n *node){
		"shared": func(n *node) {
			n.volumes = append(n.volumes, n.Volume(fc.Kind, "other", strings.Replace(byUnit, `, "50060e80167021bb"`, "", 1)))
		},
		"another": func(n *node) { n.Set(wwid+"b", "block", "sda", "device", "wwid") },
	} {
		n := newNode(t)
		n.Disk(wwid, "sda")
		n.path("sda", 3, 2)
		v := n.Volume(fc.Kind, "data", byUnit, pod)
		if err := n.driver.Stage(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		change(n)
		if err := n.driver.Unstage(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		if got := n.Attribute("block", "sda", "device", "delete"); got != "" {
			t.Errorf("%s: told %q", name, got)
		}
	}
}

// If a process holds the disk after the unmount, as through a mount in another
// namespace, Unstage fails and keeps the disk and its record. Once no process holds it,
// Unstage removes the disk with the record alone.
//
// Items: C33, M15.
func TestDiskThatIsHeldIsNotUnstaged(t *testing.T) {
	n := newNode(t)
	device := n.Disk(wwid, "sda")
	n.path("sda", 3, 2)
	v := n.Volume(fc.Kind, "data", byUnit, pod)
	if err := n.driver.Stage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	if err := unix.Mount(v.Spec.StagePath, elsewhere, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.driver.Unstage(t.Context(), v); !errors.Is(err, disk.ErrInUse) {
			t.Errorf("%s is held: got %v", device, err)
		}
		if got := n.Attribute("block", "sda", "device", "delete"); got != "" {
			t.Errorf("told %q", got)
		}
	}
	if err := unix.Unmount(elsewhere, 0); err != nil {
		t.Fatal(err)
	}
	written, err := journal.EncodeRecord(v)
	if err != nil {
		t.Fatal(err)
	}
	known, err := journal.DecodeRecord(written)
	if err != nil {
		t.Fatal(err)
	}
	n.driver = fc.New(fc.Config{Stager: n.Stager(), Volumes: func() []state.Volume { return nil }})
	if err := n.driver.Unstage(t.Context(), known); err != nil || n.Attribute("block", "sda", "device", "delete") != "1" {
		t.Errorf("held no more: %v", err)
	}
}

func TestGrowth(t *testing.T) {
	n := newNode(t)
	n.Disk(wwid, "sda")
	n.path("sda", 3, 2)
	v := n.Volume(fc.Kind, "data", byUnit, pod)
	if err := n.driver.Stage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	n.Calls()
	n.Programs["resize2fs"] = func([]string) error { return nil }
	if size, err := n.driver.Expand(t.Context(), v, pod, 1); err != nil || size != 16<<20 || n.Attribute("block", "sda", "device", "rescan") != "1" {
		t.Errorf("got %d, %v", size, err)
	}
	n.want("expand", "resize2fs /dev/sda")
}

func TestNodeWithoutAnAdapter(t *testing.T) {
	n := &node{Node: disktest.New(t)}
	n.driver = fc.New(fc.Config{Stager: n.Stager(), Volumes: func() []state.Volume { return nil }})
	v := n.Volume(fc.Kind, "data", byUnit, pod)
	if err := n.driver.Stage(t.Context(), v); err == nil || !strings.Contains(err.Error(), "adapter") {
		t.Errorf("got %v", err)
	}
	if err := n.driver.Unstage(t.Context(), v); err != nil {
		t.Error(err)
	}
}

// Items: M12.
func TestSourcesThatNameNoDiskAreRefused(t *testing.T) {
	n := newNode(t)
	for _, config := range []string{
		`{}`, `{"targetWWNs": ["50060e80167021aa"]}`, `{"lun": 1}`, `{"targetWWNs": ["x"], "lun": 1}`, `{"targetWWNs": ["../../../../.."], "lun": 1}`,
		`{"targetWWNs": ["50060e80167021aa"], "lun": -1}`, `{"targetWWNs": ["50060e80167021aa"], "lun": 256}`,
		`{"targetWWNs": ["50060e80167021aa"], "lun": 1, "wwids": ["36001405aaaaaaaaaaaaaaaaaaaaaaaaa"]}`,
		`{"wwids": [""]}`, `{"wwids": ["3../../../../../../etc/passwd"]}`, `{"wwids": ["96001405aaaaaaaaaaaaaaaaaaaaaaaaa"]}`,
	} {
		v := n.Volume(fc.Kind, "data", config, pod)
		for _, err := range []error{n.driver.Stage(t.Context(), v), n.driver.Unstage(t.Context(), v)} {
			e, ok := errors.AsType[*state.CallError](err)
			if !ok || e.Outcome != state.Refused || !errors.Is(err, fc.ErrSource) {
				t.Errorf("%s: got %v, want a refusal", config, err)
			}
		}
	}
	n.want("refused")
	if got := n.scanned(); len(got) != 0 {
		t.Errorf("scanned %q", got)
	}
}

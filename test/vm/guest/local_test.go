//go:build vm

package guest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/local"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/program"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The driver formats a blank device of a local volume. The file system grows with
// the device while a pod has it mounted and writes to it.
//
// Items: M08, M09.
func TestLocalDeviceGrowsOnline(t *testing.T) {
	sh(t, "modprobe", "loop")
	for _, module := range []string{"ext4", "xfs"} {
		sh(t, "modprobe", module)
	}
	l := layout(t)
	d := local.New(local.Config{Layout: l, Kernel: mount.New(l.Root), Allow: []string{"/dev"}, Run: new(program.Runner).Run})
	for _, fsType := range []string{"ext4", "xfs"} {
		image := "/local-" + fsType + ".img"
		sh(t, "truncate", "-s", "400M", image) // mkfs.xfs needs 300 MiB
		device := strings.TrimSpace(sh(t, "/sbin/losetup", "--find", "--show", image))
		v := volume(t, l, state.Spec{Driver: local.Kind, Name: fsType, Mode: state.Filesystem}, corev1.LocalVolumeSource{Path: device, FSType: &fsType}, pod)
		if err := d.Publish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		dir := v.Mounts[pod].Target
		write(t, dir+"/file", "before")
		before := bytesOf(t, dir)
		sh(t, "truncate", "-s", "800M", image)
		sh(t, "/sbin/losetup", "-c", device)
		size, err := d.Expand(t.Context(), v, pod, 800<<20)
		if after := bytesOf(t, dir); err != nil || size != 800<<20 || after < before*3/2 {
			t.Errorf("%s: %d bytes, %v; the file system had %d and has %d", fsType, size, err, before, after)
		}
		t.Logf("%s: grown online from %d to %d bytes", fsType, before, bytesOf(t, dir))
		if got := read(t, dir+"/file"); got != "before" {
			t.Errorf("%s: %q", fsType, got)
		}
		if err := d.Unpublish(t.Context(), v, pod); err != nil {
			t.Fatal(err)
		}
		if got := mountOf(t, dir); got != "" {
			t.Errorf("%s: mounted still: %s", fsType, got)
		}
		sh(t, "/sbin/losetup", "-d", device)
	}
}

package wire

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

const diskManifest = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  mountOptions: [errors=remount-ro]
  local: {path: DEVICE, fsType: ext4}
  claimRef: {namespace: default, name: disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: disk, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, image: i, volumeMounts: [{name: disk, mountPath: /data}]}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`

// If the kernel makes a file system read-only after an error, its volume says so without a request, and the node
// refuses the pod a container.
//
// Faults: A101.
func TestAFileSystemThatTurnsReadOnlyIsTold(t *testing.T) {
	c := dirs(t)
	c.HostPaths, c.faultsEvery = []string{"/dev"}, 50*time.Millisecond
	n, _ := start(t, c)
	device := drivertest.Device(t, "ext4")
	apply(t, n, strings.Replace(diskManifest, "DEVICE", device, 1))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().Verify(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error"), []byte("an error of the test"), 0); err != nil {
		t.Fatal(err)
	}
	for ctx := within(t); ; {
		changed := n.Manager().Changed()
		p, _ := n.Manager().Pod(uid)
		if strings.Contains(p.Volumes[0].Drift, "read-only") {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("it is not told: %+v", p.Volumes[0])
		}
	}
	if err := n.Manager().Verify(within(t), uid); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("verified: %v", err)
	}
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
}

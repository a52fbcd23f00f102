package wire

import (
	"os"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

const blockManifest = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: raw}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: ""
  local: {path: DEVICE}
  claimRef: {namespace: default, name: raw}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: "", volumeName: raw, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: app, image: i, volumeDevices: [{name: raw, devicePath: /dev/raw}]}]
  volumes: [{name: raw, persistentVolumeClaim: {claimName: raw}}]
`

const readerManifest = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers: [{name: app, image: i, volumeDevices: [{name: raw, devicePath: /dev/raw}]}]
  volumes: [{name: raw, persistentVolumeClaim: {claimName: raw, readOnly: true}}]
`

// A container gets a raw block volume of a built-in kind as a device, which is removed with the pod.
//
// Items: M08, N08.
func TestContainersAreGivenADevice(t *testing.T) {
	c := dirs(t)
	c.HostPaths = []string{"/dev"}
	n, _ := start(t, c)
	device := drivertest.Device(t, "")
	apply(t, n, strings.Replace(blockManifest, "DEVICE", device, 1))
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	m := must(t, n, "app")["/dev/raw"]
	if !m.Device || m.ReadOnly || m.Permissions != "mrw" {
		t.Errorf("got %+v, want a device", m)
	}
	apply(t, n, strings.Replace(readerManifest, "NAME", "reader", 1))
	if err := n.Manager().WaitForAttachAndMount(within(t), uidOf(t, n, "reader")); err != nil {
		t.Fatal(err)
	}
	of := app("app")
	of.Pod = "reader"
	if got, err := n.ContainerMounts(within(t), of); err != nil || len(got) != 1 || !got[0].Device || got[0].Permissions != "r" {
		t.Errorf("of a claim that is only read: %+v, %v", got, err)
	}
	if err := n.DeletePod(within(t), "default", "reader"); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(m.HostPath, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeDevice == 0 {
		t.Errorf("%s: %v, %v", m.HostPath, st.Mode(), err)
	}
	f.Close()
	if err := n.DeletePod(within(t), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
}

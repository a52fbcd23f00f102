package e2e

import (
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// manifest joins documents.
func manifest(docs ...string) string { return strings.Join(docs, "\n---\n") }

// class returns a StorageClass named "class" for the driver, and the driver's CSIDriver
// object.
func (k kind) class() string {
	params := ""
	for name, value := range k.params {
		params += fmt.Sprintf("  %s: %q\n", name, value)
	}
	if params != "" {
		params = "parameters:\n" + params
	}
	return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %[1]s}
spec:
  attachRequired: %[2]v
  podInfoOnMount: true
  fsGroupPolicy: File
  volumeLifecycleModes: [Persistent, Ephemeral]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: class}
provisioner: %[1]s
reclaimPolicy: Delete
allowVolumeExpansion: true
%[3]s`, k.name, k.attach, params)
}

// claim returns a claim with a size, for a file system or a device.
func claim(name, size, mode, access string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  storageClassName: class
  accessModes: [%s]
  volumeMode: %s
  resources: {requests: {storage: %s}}`, name, access, mode, size)
}

// volume is one volume of a pod: its name and its source as YAML.
type volume = harness.Volume

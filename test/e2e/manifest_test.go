package e2e

import (
	"fmt"
	"strings"
)

// manifest joins documents.
func manifest(docs ...string) string { return strings.Join(docs, "\n---\n") }

// class is a StorageClass named "class" for the driver, with the driver's own object.
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

// claim is a claim of a size, for a file system unless mode is Block.
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
type volume struct {
	name, source string
	block        bool
	readOnly     bool
}

func fromClaim(name, claim string) volume {
	return volume{name: name, source: fmt.Sprintf("persistentVolumeClaim: {claimName: %s}", claim)}
}

// pod is a pod with one container that uses all of the volumes.
func pod(name string, volumes ...volume) string {
	var specs, mounts, devices strings.Builder
	for _, v := range volumes {
		fmt.Fprintf(&specs, "  - {name: %s, %s}\n", v.name, v.source)
		if v.block {
			fmt.Fprintf(&devices, "    - {name: %s, devicePath: /dev/%s}\n", v.name, v.name)
			continue
		}
		fmt.Fprintf(&mounts, "    - {name: %s, mountPath: /%s, readOnly: %v}\n", v.name, v.name, v.readOnly)
	}
	doc := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - name: main\n    image: none\n", name)
	for _, list := range []struct{ field, items string }{
		{"    volumeMounts:\n", mounts.String()}, {"    volumeDevices:\n", devices.String()}, {"  volumes:\n", specs.String()},
	} {
		if list.items != "" {
			doc += list.field + list.items
		}
	}
	return doc
}

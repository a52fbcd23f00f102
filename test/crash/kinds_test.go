package crash

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

const objects = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: local.csi-volmgr.dev}
spec: {attachRequired: false, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: class}
provisioner: local.csi-volmgr.dev
reclaimPolicy: Delete
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: class, accessModes: [ReadWriteOnce], resources: {requests: {storage: %[1]s}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {storageClassName: class, accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: copy}
spec:
  storageClassName: class
  accessModes: [ReadWriteOnce]
  dataSource: {kind: PersistentVolumeClaim, name: data}
  resources: {requests: {storage: %[1]s}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: shelf}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: shelf}
  local: {path: %[3]s/disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shelf}
spec: {storageClassName: "", volumeName: shelf, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: format}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: format}
  local: {path: %[4]s, fsType: ext4}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: format}
spec: {storageClassName: "", volumeName: format, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: raw}
spec:
  capacity: {storage: 16Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: ""
  claimRef: {namespace: default, name: raw}
  local: {path: %[5]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {storageClassName: "", volumeName: raw, accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: %[2]s, other: same}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: %[2]s}
`

const podObject = `---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  securityContext: {fsGroup: 2000}
  containers:
  - name: main
    image: none
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: inline, mountPath: /inline}
    - {name: scratch, mountPath: /scratch}
    - {name: memory, mountPath: /memory}
    - {name: settings, mountPath: /settings}
    - {name: key, mountPath: /key}
    - {name: shelf, mountPath: /shelf}
    - {name: host, mountPath: /host}
    - {name: self, mountPath: /self}
    - {name: all, mountPath: /all}
    - {name: format, mountPath: /format}
    - {name: picture, mountPath: /picture}
    - {name: file, mountPath: /file}
    - {name: data, mountPath: /part, subPath: made/here}
    - {name: settings, mountPath: /one, subPath: deep/er}
    volumeDevices:
    - {name: disk, devicePath: /dev/disk}
    - {name: raw, devicePath: /dev/raw}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: inline, csi: {driver: local.csi-volmgr.dev}}
  - {name: scratch, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: settings, configMap: {name: settings, items: [{key: greeting, path: greeting}, {key: other, path: deep/er, mode: 0400}]}}
  - {name: key, secret: {secretName: key}}
  - {name: shelf, persistentVolumeClaim: {claimName: shelf}}
  - {name: host, hostPath: {path: %[3]s/made, type: DirectoryOrCreate}}
  - {name: self, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: all, projected: {sources: [{configMap: {name: settings}}, {secret: {name: key}}]}}
  - {name: format, persistentVolumeClaim: {claimName: format}}
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  - {name: picture, image: {reference: "registry.example.com/models/small:v1", pullPolicy: IfNotPresent}}
  - {name: file, hostPath: {path: %[3]s/file, type: FileOrCreate}}
`

// own are the claims and volumes of the node's own disks.
var own = []string{"shelf", "format", "raw"}

func (n *node) manifest(objects, size, text string) server.Manifest {
	return server.Manifest{Name: "-", Data: fmt.Appendf(nil, objects, size, text, n.path("host"), n.plain, n.raw)}
}

// contains: what the container is to be given is there, parts of volumes too.
func (n *node) contains() error {
	mounts, err := n.api.ContainerMounts(n.ctx(), server.Container{Namespace: "default", Pod: "web", Name: "main"})
	if err != nil {
		return err
	}
	for _, m := range mounts {
		st, err := os.Stat(m.HostPath)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", m.ContainerPath, err)
		case m.ContainerPath == "/part" && !st.IsDir(), m.ContainerPath == "/one" && st.Mode().Perm() != 0o440:
			return fmt.Errorf("%s is %v", m.ContainerPath, st.Mode())
		}
	}
	if len(mounts) != 17 {
		return fmt.Errorf("the container has %d mounts: %+v", len(mounts), mounts)
	}
	return nil
}

// damage takes from the journal what it begins with, as a disk may.
func (n *node) damage() {
	if n.apart {
		return // the daemon has it open
	}
	n.damages++
	files, err := filepath.Glob(n.path("state/*.db"))
	if err != nil || len(files) != 1 {
		n.t.Fatalf("journal: %q, %v", files, err)
	}
	f, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 16<<10), 0); err != nil {
		n.t.Fatal(err)
	}
}

package crash

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
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: reads-hello}
driverName: local.csi-volmgr.dev
parameters: {readAheadKB: "64"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: reads-goodbye}
driverName: local.csi-volmgr.dev
parameters: {readAheadKB: "256"}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, labels: {of: pair}}
spec:
  storageClassName: class
  volumeAttributesClassName: reads-%[2]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: %[1]s}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {storageClassName: class, accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: copy, labels: {of: pair}}
spec:
  storageClassName: class
  accessModes: [ReadWriteOnce]
  dataSource: {kind: PersistentVolumeClaim, name: data}
  resources: {requests: {storage: %[1]s}}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: photo, annotations: {csi-volmgr.dev/freeze: 10s}}
spec: {source: {persistentVolumeClaimName: data}}
---
apiVersion: groupsnapshot.storage.k8s.io/v1
kind: VolumeGroupSnapshot
metadata: {name: pair, annotations: {csi-volmgr.dev/freeze: 10s}}
spec: {source: {selector: {matchLabels: {of: pair}}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: shelf}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  local: {path: %[3]s/disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shelf}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
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

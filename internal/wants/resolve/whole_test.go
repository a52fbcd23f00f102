package resolve_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const sharingPod = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  initContainers:
  - {name: first, image: i, volumeMounts: [{name: data, mountPath: /d, readOnly: true}, {name: host, mountPath: /h, mountPropagation: HostToContainer}]}
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: data, mountPath: /d}
    - {name: host, mountPath: /h, mountPropagation: HostToContainer}
    - {name: settings, mountPath: /s}
    - {name: reader, mountPath: /r, readOnly: true}
    - {name: refused, mountPath: /x, mountPropagation: Bidirectional}
    - {name: mixed, mountPath: /m, mountPropagation: HostToContainer}
  - name: privileged
    image: i
    securityContext: {privileged: true}
    volumeMounts:
    - {name: both, mountPath: /b, mountPropagation: Bidirectional}
    - {name: mixed, mountPath: /m, mountPropagation: Bidirectional}
  volumes:
  - {name: data, emptyDir: {}}
  - {name: reader, emptyDir: {}}
  - {name: refused, emptyDir: {}}
  - {name: mixed, emptyDir: {}}
  - {name: both, emptyDir: {}}
  - {name: host, hostPath: {path: /h}}
  - {name: settings, configMap: {name: c}}
`

// What a pod's containers ask for alike is what the pod is told. Where they differ it is told of a mount that each may
// have: read-only if all have that, and the narrowest propagation.
func TestWholesOfAPod(t *testing.T) {
	want := map[string]resolve.Whole{
		"data":     {Propagation: "rprivate", Differ: true},
		"host":     {Propagation: "rslave"},
		"settings": {Propagation: "rprivate", ReadOnly: true},
		"reader":   {Propagation: "rprivate", ReadOnly: true},
		"refused":  {Propagation: "rprivate"},
		"both":     {Propagation: "rshared", Bidirectional: true},
		"mixed":    {Propagation: "rslave", Differ: true, Bidirectional: true},
	}
	if diff := cmp.Diff(want, resolve.Wholes(parse(t, sharingPod).pod())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

const peersPod = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-local}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  local: {path: /disks/a}
  claimRef: {name: local, namespace: default}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: local, namespace: default}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}, volumeName: pv-local, storageClassName: ""}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-csi}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteMany]
  storageClassName: ""
  csi: {driver: DRIVER, volumeHandle: h}
  claimRef: {name: csi, namespace: default}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: csi, namespace: default}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}, volumeName: pv-csi, storageClassName: ""}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, uid: u-1}
spec:
  containers:
  - name: app
    image: i
    securityContext: {privileged: PRIVILEGED}
    volumeMounts:
    - {name: local, mountPath: /l}
    - {name: again, mountPath: /a, mountPropagation: Bidirectional}
    - {name: csi, mountPath: /c, mountPropagation: Bidirectional}
    - {name: scratch, mountPath: /s, mountPropagation: Bidirectional}
    - {name: inline, mountPath: /i, mountPropagation: Bidirectional}
  volumes:
  - {name: local, persistentVolumeClaim: {claimName: local}}
  - {name: again, persistentVolumeClaim: {claimName: local}}
  - {name: csi, persistentVolumeClaim: {claimName: csi}}
  - {name: scratch, emptyDir: {}}
  - {name: inline, csi: {driver: DRIVER}}
`

// The kinds that bind what pods share, and the embedded driver, hear of a container that shares its own mounts with the
// volume's other pods, by any of the pod's names for it. Other drivers hear nothing that they did not hear before, nor
// does any for a container that must not.
func TestWhoHearsOfPeers(t *testing.T) {
	for _, tc := range []struct {
		driver, privileged string
		want               []string
	}{
		{"local.csi-volmgr.dev", "true", []string{"csi", "again"}},
		{"csi.example.com", "true", []string{"again"}},
		{"local.csi-volmgr.dev", "false", nil},
	} {
		w := parse(t, strings.NewReplacer("DRIVER", tc.driver, "PRIVILEGED", tc.privileged).Replace(peersPod))
		w.config.Builtins = []state.DriverName{kind.Local, kind.EmptyDir}
		w.objects[resolve.Key{Kind: "CSIDriver", Name: tc.driver}] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{
			FSGroupPolicy:        ptr(storagev1.NoneFSGroupPolicy),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral},
		}}
		var got []string
		for _, v := range w.resolve().Volumes {
			if v.Problem != "" {
				t.Errorf("%s: %v: %s", tc.driver, v.Names, v.Problem)
			}
			if v.Mount.Context["csi-volmgr.dev/mount-propagation"] == "Bidirectional" {
				got = append(got, v.Names[0])
			}
		}
		if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(tc.want))) {
			t.Errorf("%s, privileged %s: %q, want %q", tc.driver, tc.privileged, got, tc.want)
		}
	}
}

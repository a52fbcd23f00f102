package wire

import "testing"

// The node mounts a volume whose node affinity asks for a label that the operator gave the node.
func TestTheNodesLabelsReachItsVolumes(t *testing.T) {
	c := dirs(t)
	dir := t.TempDir()
	c.HostPaths, c.Labels = []string{dir}, map[string]string{"zone": "a"}
	n, _ := start(t, c)
	apply(t, n, `
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  claimRef: {namespace: default, name: data}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}}
  local: {path: `+dir+`}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: pv, accessModes: [ReadWriteOnce]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: web-uid}
spec:
  containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
`)
	if err := n.Manager().WaitForAttachAndMount(within(t), "web-uid"); err != nil {
		t.Fatal(err)
	}
}

package resolve_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
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
		"both":     {Propagation: "rshared"},
		"mixed":    {Propagation: "rslave", Differ: true},
	}
	if diff := cmp.Diff(want, resolve.Wholes(parse(t, sharingPod).pod())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package manifest_test

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
)

const vendor = `apiVersion: v1
kind: ServiceAccount
metadata: {name: a}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: kube-system}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: b}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: d.example.com}
spec: {attachRequired: false}
`

// A vendor's whole file is refused with one line that says how many objects are the cluster's, and how to apply the others.
func TestAVendorsFileIsRefusedInOneLine(t *testing.T) {
	_, err := manifest.Decode("x.yaml", []byte(vendor))
	const want = "x.yaml: kind: found 2 DaemonSet, 1 ServiceAccount: objects that run a driver or give it rights in a cluster; " +
		"csi-volmgr runs no containers: start the driver as docs/drivers.md says; apply the other 1 with: csi-volmgr apply --skip-unknown"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Only objects of other kinds are left out: a misspelt kind, an unknown field and another version stay errors.
func TestOnlyOtherKindsAreLeftOut(t *testing.T) {
	got, err := manifest.DecodeKnown(t.Context(), "x.yaml", []byte(vendor+"---\napiVersion: ceph.rook.io/v1\nkind: CephBlockPool\nmetadata: {name: p}\n"))
	if err != nil || len(got.Objects) != 1 || manifest.Count(got.Others) != "1 CephBlockPool, 2 DaemonSet, 1 ServiceAccount" {
		t.Errorf("%+v, %v", got, err)
	}
	if o := got.Others[1]; o != (manifest.Other{Kind: "DaemonSet", Namespace: "kube-system", Name: "a"}) {
		t.Errorf("%+v", o)
	}
	for text, want := range map[string]string{
		"apiVersion: v1\nkind: Secrt\nmetadata: {name: a}\n":                                                   "did you mean Secret?",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatta: {}\n":                                    "unknown field",
		"apiVersion: storage.k8s.io/v2\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: d.example.com\n": "want storage.k8s.io/v1",
	} {
		got, err := manifest.DecodeKnown(t.Context(), "x.yaml", []byte(vendor+"---\n"+text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "DaemonSet") || len(got.Objects)+len(got.Others) > 0 {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

package containers

import (
	"slices"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Whether the runtime relabels a volume's files, for every kind: on a file system with
// labels, on one without labels or mounted with one label, and on a read-only one.
func TestWhichVolumesTheRuntimeRelabels(t *testing.T) {
	const always, writable, labelled, never = "always", "writable", "labelled", "never"
	kinds := map[state.DriverName]string{
		"kubernetes.io/empty-dir": always, "kubernetes.io/configmap": always, "kubernetes.io/secret": always,
		"kubernetes.io/downward-api": always, "kubernetes.io/projected": always, "kubernetes.io/local-volume": writable,
		"kubernetes.io/iscsi": labelled, "kubernetes.io/fc": labelled, "csi.example.com": labelled,
		"kubernetes.io/nfs": never, "kubernetes.io/cephfs": never, "kubernetes.io/glusterfs": never,
		"kubernetes.io/host-path": never, "kubernetes.io/image": never,
	}
	for _, k := range kind.All() {
		if kinds[k.Name] == "" {
			t.Errorf("%s: not in this test", k.Name)
		}
	}
	for of, want := range kinds {
		for _, tc := range []struct {
			labels, readOnly bool
			in               []string
		}{
			{true, false, []string{always, writable, labelled}},
			{false, false, []string{always, writable}},
			{true, true, []string{always}},
		} {
			v := manager.MountedVolume{Driver: of, ReadOnly: tc.readOnly}
			if got := relabel(v, func(manager.MountedVolume) bool { return tc.labels }); got != slices.Contains(tc.in, want) {
				t.Errorf("%s, %+v: relabel is %v", of, tc, got)
			}
		}
	}
}

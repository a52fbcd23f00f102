package metrics

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// labelled is a node with volumes of some modes and labels.
type labelled struct{ shown }

func (labelled) Volumes() []manager.VolumeStatus {
	volume := func(s *manager.SELinuxStatus, pods int, modes ...state.AccessMode) manager.VolumeStatus {
		return manager.VolumeStatus{
			Volume: state.Volume{Spec: &state.Spec{Driver: "d.test", AccessModes: modes}}, SELinux: s, Wanted: make([]state.PodUID, pods),
		}
	}
	return []manager.VolumeStatus{
		volume(nil, 1, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{Label: "x", Applied: true}, 5, state.ReadWriteOncePod),
		volume(&manager.SELinuxStatus{Label: "x", Applied: true, Conflicts: []state.PodUID{"p"}}, 2, state.ReadWriteOncePod),
		volume(&manager.SELinuxStatus{Label: "x", Conflicts: []state.PodUID{"p", "q"}}, 3, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{}, 1, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{Label: "x"}, 9, state.ReadOnlyMany, state.ReadWriteMany),
		volume(&manager.SELinuxStatus{Label: "x"}, 9, state.ReadOnlyMany),
	}
}

// A volume is counted once, however many pods have it; conflicts are errors where
// labels are applied and warnings elsewhere.
//
// Items: H11, H16.
// Scenarios: U-102, U-103.
func TestLabelsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := RegisterSELinux(r, labelled{}); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP volume_manager_selinux_volume_context_mismatch_errors_total Number of pods that wait because the volume is mounted with another SELinux label.
# TYPE volume_manager_selinux_volume_context_mismatch_errors_total gauge
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 0
# HELP volume_manager_selinux_volume_context_mismatch_warnings_total Number of pods that have a volume with another SELinux label than other pods have, which they would wait for if volumes of its access mode were mounted with labels.
# TYPE volume_manager_selinux_volume_context_mismatch_warnings_total gauge
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 2
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 0
# HELP volume_manager_selinux_volumes_admitted_total Number of volumes for which a pod asks for an SELinux label that they can be mounted with, each counted once.
# TYPE volume_manager_selinux_volumes_admitted_total gauge
volume_manager_selinux_volumes_admitted_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volumes_admitted_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volumes_admitted_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 2
volume_manager_selinux_volumes_admitted_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

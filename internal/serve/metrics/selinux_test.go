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
	iscsi := volume(&manager.SELinuxStatus{Label: "x", Applied: true}, 1, state.ReadWriteOnce)
	iscsi.Volume.Spec.Driver = "kubernetes.io/iscsi"
	return []manager.VolumeStatus{
		iscsi,
		volume(nil, 1, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{Label: "x", Applied: true}, 5, state.ReadWriteOncePod),
		volume(&manager.SELinuxStatus{Label: "x", Applied: true, Conflicts: []state.PodUID{"p"}}, 2, state.ReadWriteOncePod),
		volume(&manager.SELinuxStatus{Label: "x", Conflicts: []state.PodUID{"p", "q"}}, 3, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{}, 1, state.ReadWriteOnce),
		volume(&manager.SELinuxStatus{Label: "x"}, 9, state.ReadOnlyMany, state.ReadWriteMany),
		volume(&manager.SELinuxStatus{Label: "x"}, 9, state.ReadOnlyMany),
	}
}

func (labelled) Pods() []manager.PodStatus {
	volume := func(applied bool, fault state.SELinuxFault, modes ...state.AccessMode) manager.PodVolumeStatus {
		return manager.PodVolumeStatus{SELinux: &state.SELinuxWish{Applied: applied, Fault: fault, AccessModes: modes}}
	}
	return []manager.PodStatus{
		{Volumes: []manager.PodVolumeStatus{
			{},
			volume(true, "", state.ReadWriteOnce),
			volume(true, state.SELinuxContainers, state.ReadWriteOnce), volume(true, state.SELinuxContainers, state.ReadWriteOnce),
			volume(false, state.SELinuxOptions, state.ReadWriteOnce),
		}},
		{Volumes: []manager.PodVolumeStatus{
			volume(true, state.SELinuxOptions, state.ReadWriteMany), volume(false, state.SELinuxContainers, state.ReadWriteMany),
			volume(true, state.SELinuxOptions, state.ReadWriteMany),
		}},
	}
}

// A volume counts once, however many pods have it; conflicts between pods or within one are
// errors if labels are applied, and warnings otherwise.
//
// Items: H11, H16, H10, H13, H15.
// Scenarios: U-102, U-103.
func TestLabelsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := RegisterSELinux(r, labelled{}); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP volume_manager_selinux_container_errors_total Number of volumes of pods that wait because a container's seLinuxOptions make no label.
# TYPE volume_manager_selinux_container_errors_total gauge
volume_manager_selinux_container_errors_total{access_mode="RWO"} 0
volume_manager_selinux_container_errors_total{access_mode="RWX"} 2
# HELP volume_manager_selinux_container_warnings_total Number of volumes of pods with a container whose seLinuxOptions make no label. They would wait if volumes of its access mode were mounted with labels.
# TYPE volume_manager_selinux_container_warnings_total gauge
volume_manager_selinux_container_warnings_total{access_mode="RWO"} 1
volume_manager_selinux_container_warnings_total{access_mode="RWX"} 0
# HELP volume_manager_selinux_pod_context_mismatch_errors_total Number of volumes of pods that wait because the pod's containers ask for different SELinux labels.
# TYPE volume_manager_selinux_pod_context_mismatch_errors_total gauge
volume_manager_selinux_pod_context_mismatch_errors_total{access_mode="RWO"} 2
volume_manager_selinux_pod_context_mismatch_errors_total{access_mode="RWX"} 0
# HELP volume_manager_selinux_pod_context_mismatch_warnings_total Number of volumes of pods whose containers ask for different SELinux labels. They would wait if volumes of its access mode were mounted with labels.
# TYPE volume_manager_selinux_pod_context_mismatch_warnings_total gauge
volume_manager_selinux_pod_context_mismatch_warnings_total{access_mode="RWO"} 0
volume_manager_selinux_pod_context_mismatch_warnings_total{access_mode="RWX"} 1
# HELP volume_manager_selinux_volume_context_mismatch_errors_total Number of pods that wait because the volume is mounted with another SELinux label.
# TYPE volume_manager_selinux_volume_context_mismatch_errors_total gauge
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWO",volume_plugin="kubernetes.io/iscsi"} 0
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 0
# HELP volume_manager_selinux_volume_context_mismatch_warnings_total Number of pods that have a volume with another SELinux label than other pods have, which they would wait for if volumes of its access mode were mounted with labels.
# TYPE volume_manager_selinux_volume_context_mismatch_warnings_total gauge
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 2
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWO",volume_plugin="kubernetes.io/iscsi"} 0
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 0
volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 0
# HELP volume_manager_selinux_volumes_admitted_total Number of volumes for which a pod asks for an SELinux label that they can be mounted with, each counted once.
# TYPE volume_manager_selinux_volumes_admitted_total gauge
volume_manager_selinux_volumes_admitted_total{access_mode="ROX",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volumes_admitted_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 1
volume_manager_selinux_volumes_admitted_total{access_mode="RWO",volume_plugin="kubernetes.io/iscsi"} 1
volume_manager_selinux_volumes_admitted_total{access_mode="RWOP",volume_plugin="kubernetes.io/csi/d.test"} 2
volume_manager_selinux_volumes_admitted_total{access_mode="RWX",volume_plugin="kubernetes.io/csi/d.test"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

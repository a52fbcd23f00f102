package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Each kind of trouble gets a status of the API. One that the API has no status for never
// counts as healthy.
//
// Items: Q06, Q07.
func TestHealthInTheWordsOfTheAPI(t *testing.T) {
	for _, tc := range []struct {
		c             stats.Condition
		volume        corev1.VolumeHealthStatusType
		storage       storagev1.StorageHealthStatusType
		reason, about string
	}{
		{stats.Condition{Status: "INACCESSIBLE", Reason: "NoPath", Message: "m"}, "Inaccessible", "StorageDegraded", "NoPath", "m"},
		{stats.Condition{Status: "DATA_LOSS", Reason: "Torn"}, "DataLoss", "StorageDegraded", "Torn", ""},
		{stats.Condition{Status: "DEGRADED", Reason: "One_Disk2"}, "Degraded", "StorageDegraded", "One_Disk2", ""},
		{stats.Condition{Status: "STORAGE_UNREACHABLE", Reason: "NoPath"}, "Degraded", "StorageUnreachable", "NoPath", ""},
		{stats.Condition{Status: "STORAGE_DEGRADED"}, "Degraded", "StorageDegraded", "Unspecified", ""},
		{stats.Condition{Status: "99", Reason: "New"}, "Degraded", "StorageDegraded", "New", ""},
		{stats.Condition{Message: "before CSI 1.13"}, "Degraded", "StorageDegraded", "Unspecified", "before CSI 1.13"},
		{stats.Condition{Status: "STORAGE_UNREACHABLE", Kernel: true}, "Inaccessible", "StorageUnreachable", "MountNotServed", ""},
		{stats.Condition{Status: "DEGRADED", Reason: "1: no path!\n"}, "Degraded", "StorageDegraded", "nopath", ""},
		{stats.Condition{Status: "DEGRADED", Reason: strings.Repeat("x", 300), Message: strings.Repeat("é", 600)}, "Degraded", "StorageDegraded", strings.Repeat("x", 256), strings.Repeat("é", 512)},
		{stats.Condition{Status: "DEGRADED", Message: strings.Repeat("x", 1023) + "é"}, "Degraded", "StorageDegraded", "Unspecified", strings.Repeat("x", 1023)},
	} {
		v, s := volumeConditions([]stats.Condition{tc.c})[0], storageConditions([]stats.Condition{tc.c})[0]
		if v.Status != tc.volume || v.Reason != tc.reason || v.Message != tc.about {
			t.Errorf("%+v: %+v", tc.c, v)
		}
		if s.Status != tc.storage || s.Reason != tc.reason || s.Message != tc.about || s.AccessMode != nil || s.VolumeMode != nil {
			t.Errorf("%+v: %+v", tc.c, s)
		}
	}
	s := storageConditions([]stats.Condition{{Status: "STORAGE_DEGRADED", AccessMode: state.ReadWriteMany, VolumeMode: state.Block}})[0]
	if s.AccessMode == nil || *s.AccessMode != corev1.ReadWriteMany || s.VolumeMode == nil || *s.VolumeMode != corev1.PersistentVolumeBlock {
		t.Errorf("of some volumes: %+v", s)
	}
}

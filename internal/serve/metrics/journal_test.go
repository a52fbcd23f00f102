package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// failing is a journal on a full disk or, if well is set, on a sound one.
type failing struct {
	manager.Store
	well bool
}

func (f failing) Commit(context.Context, map[state.VolumeID]*state.Volume) error {
	if f.well {
		return nil
	}
	return errors.New("no space left")
}

func TestWritesOfTheJournalAreMeasured(t *testing.T) {
	for status, well := range map[string]bool{"success": true, "fail": false} {
		r := prometheus.NewRegistry()
		store, err := Journal(r, failing{well: well})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Commit(t.Context(), nil); (err == nil) != well {
			t.Errorf("%s: %v", status, err)
		}
		all, err := r.Gather()
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		m := all[0].GetMetric()
		if len(m) != 1 || m[0].GetLabel()[0].GetValue() != status || m[0].GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%s: %v", status, m)
		}
	}
}

func TestTokensSocketsAndImagesAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	kept := true
	if err := RegisterTokens(r, func() (time.Time, bool) { return now.Add(time.Hour), kept }, func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	if err := RegisterSockets(r, func() map[string]bool { return map[string]bool{"/a": true, "/b": false} }); err != nil {
		t.Fatal(err)
	}
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range []string{"", "", "no such image"} {
		m.Call(manager.EndedCall{Driver: kind.Image, Op: plan.Publish, Error: failure})
	}
	m.Call(manager.EndedCall{Driver: kind.Image, Op: plan.Unpublish})
	const want = `
# HELP csi_volmgr_token_expiry_seconds Seconds until the first of the volumes' service account tokens expires; it is renewed before. No sample without a token.
# TYPE csi_volmgr_token_expiry_seconds gauge
csi_volmgr_token_expiry_seconds 3600
# HELP kubelet_image_volume_mounted_errors_total Number of mounts of image volumes that failed.
# TYPE kubelet_image_volume_mounted_errors_total counter
kubelet_image_volume_mounted_errors_total 1
# HELP kubelet_image_volume_mounted_succeed_total Number of mounts of image volumes that succeeded.
# TYPE kubelet_image_volume_mounted_succeed_total counter
kubelet_image_volume_mounted_succeed_total 2
# HELP kubelet_image_volume_requested_total Number of mounts of image volumes that were requested.
# TYPE kubelet_image_volume_requested_total counter
kubelet_image_volume_requested_total 3
# HELP plugin_manager_total_plugins Number of registration sockets that exist (desired_state_of_world), and of those whose driver is registered (actual_state_of_world).
# TYPE plugin_manager_total_plugins gauge
plugin_manager_total_plugins{socket_path="/a",state="actual_state_of_world"} 1
plugin_manager_total_plugins{socket_path="/a",state="desired_state_of_world"} 1
plugin_manager_total_plugins{socket_path="/b",state="desired_state_of_world"} 1
`
	names := []string{
		"csi_volmgr_token_expiry_seconds", "kubelet_image_volume_mounted_errors_total", "kubelet_image_volume_mounted_succeed_total",
		"kubelet_image_volume_requested_total", "plugin_manager_total_plugins",
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	kept = false
	if n, err := testutil.GatherAndCount(r, "csi_volmgr_token_expiry_seconds"); err != nil || n != 0 {
		t.Errorf("without a token: %d samples, %v", n, err)
	}
}

// many is a node with 30,000 volumes that all wait.
type many struct{ shown }

func (many) Volumes() (all []manager.VolumeStatus) {
	for range 10_000 {
		all = append(all, shown{}.Volumes()[1:4]...)
	}
	return all
}

// The number of series does not grow with pods and volumes.
//
// Faults: A127.
func TestSeriesAreBounded(t *testing.T) {
	counts := map[bool]int{}
	for few, s := range map[bool]Source{true: shown{}, false: many{}} {
		r := prometheus.NewRegistry()
		if err := Register(r, s, time.Now); err != nil {
			t.Fatal(err)
		}
		n, err := testutil.GatherAndCount(r)
		if err != nil {
			t.Fatal(err)
		}
		counts[few] = n
	}
	if counts[false] > counts[true] {
		t.Errorf("%d series of a few volumes, %d of many", counts[true], counts[false])
	}
}

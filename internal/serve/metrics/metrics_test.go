package metrics

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

var now = time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)

// shown is a node with a volume of each sort.
type shown struct{}

func (shown) Volumes() []manager.VolumeStatus {
	volume := func(driver string, change func(*manager.VolumeStatus)) manager.VolumeStatus {
		v := manager.VolumeStatus{
			Volume: state.Volume{
				Spec:   &state.Spec{Driver: state.DriverName(driver)},
				Mounts: map[state.PodUID]state.Mount{"p": {Fact: state.Fact{Phase: state.Present}}},
			},
			Wanted: []state.PodUID{"p"},
		}
		change(&v)
		return v
	}
	return []manager.VolumeStatus{
		volume("d.example", func(*manager.VolumeStatus) {}),
		volume("d.example", func(v *manager.VolumeStatus) {
			v.Volume.Mounts = nil
			v.Held = plan.Held{Step: plan.Attach, Code: plan.Pause, Reason: "not attached"}
		}),
		volume("d.example", func(v *manager.VolumeStatus) {
			v.Wanted, v.Held = nil, plan.Held{Step: plan.Unpublish, Code: plan.Pause, Reason: "pause"}
			v.Volume.Mounts["p"] = state.Mount{Fact: state.Fact{Phase: state.Leaving, Failed: &state.Retry{Attempts: 4}}}
		}),
		volume("d.example", func(v *manager.VolumeStatus) {
			v.Volume.Stage.Phase, v.Call = state.Entering, plan.Op{Kind: plan.Stage}
		}),
		volume("gone.example", func(v *manager.VolumeStatus) {
			v.Volume.Mounts["p"] = state.Mount{Fact: state.Fact{Phase: state.Present}, RenewAt: now.Add(-90 * time.Second)}
			v.Held = plan.Held{Step: plan.Republish, Code: plan.Pause, Reason: "the driver has gone"}
		}),
		volume("kubernetes.io/secret", func(*manager.VolumeStatus) {}),
		volume("", func(v *manager.VolumeStatus) { v.Quarantined = "checksum" }),
	}
}

func (shown) Pods() []manager.PodStatus {
	return []manager.PodStatus{
		{Listed: true, Ready: true},
		{Listed: true, Volumes: []manager.PodVolumeStatus{{Step: plan.Stage, Since: now.Add(-time.Minute)}, {Step: plan.Publish, Since: now.Add(-time.Hour)}}},
		{Listed: false},
	}
}

func (shown) Drivers() []manager.DriverStatus {
	return []manager.DriverStatus{
		{DriverInfo: manager.DriverInfo{Name: "d.example"}, Up: true, Calls: 2, Generation: 3},
		{DriverInfo: manager.DriverInfo{Name: "gone.example"}},
	}
}

// Items: O07.
func TestWhatIsCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := Register(r, shown{}, func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP csi_volmgr_calls_in_flight Number of calls under way.
# TYPE csi_volmgr_calls_in_flight gauge
csi_volmgr_calls_in_flight{driver_name="d.example"} 2
csi_volmgr_calls_in_flight{driver_name="gone.example"} 0
# HELP csi_volmgr_driver_starts_total How often the driver came up since the daemon started.
# TYPE csi_volmgr_driver_starts_total counter
csi_volmgr_driver_starts_total{driver_name="d.example"} 3
csi_volmgr_driver_starts_total{driver_name="gone.example"} 0
# HELP csi_volmgr_driver_up 1 while the driver answers, 0 while it is gone and has volumes here.
# TYPE csi_volmgr_driver_up gauge
csi_volmgr_driver_up{driver_name="d.example"} 1
csi_volmgr_driver_up{driver_name="gone.example"} 0
# HELP csi_volmgr_failing_volumes Number of volumes whose last call failed.
# TYPE csi_volmgr_failing_volumes gauge
csi_volmgr_failing_volumes{driver_name="d.example"} 1
csi_volmgr_failing_volumes{driver_name="gone.example"} 0
csi_volmgr_failing_volumes{driver_name="kubernetes.io/secret"} 0
# HELP csi_volmgr_held_volumes Number of volumes that are not as wanted and have no call under way, by the step that waits and what it waits for: the driver, the pause after a failure, or something else, which explain names.
# TYPE csi_volmgr_held_volumes gauge
csi_volmgr_held_volumes{driver_name="d.example",step="Attach",waits_for="another"} 1
csi_volmgr_held_volumes{driver_name="d.example",step="Unpublish",waits_for="pause"} 1
csi_volmgr_held_volumes{driver_name="gone.example",step="Republish",waits_for="driver"} 1
# HELP csi_volmgr_in_doubt_volumes Number of uncertain volumes for which no call is under way: the last one had no definite answer.
# TYPE csi_volmgr_in_doubt_volumes gauge
csi_volmgr_in_doubt_volumes{driver_name="d.example"} 1
csi_volmgr_in_doubt_volumes{driver_name="gone.example"} 0
csi_volmgr_in_doubt_volumes{driver_name="kubernetes.io/secret"} 0
# HELP csi_volmgr_oldest_wait_seconds How long the volume with the longest wait has waited for its present step; 0 if none waits.
# TYPE csi_volmgr_oldest_wait_seconds gauge
csi_volmgr_oldest_wait_seconds 3600
# HELP csi_volmgr_pods Number of pods: ready, waiting for volumes, or leaving.
# TYPE csi_volmgr_pods gauge
csi_volmgr_pods{state="leaving"} 1
csi_volmgr_pods{state="ready"} 1
csi_volmgr_pods{state="waiting"} 1
# HELP csi_volmgr_quarantined_volumes Number of records that could not be read; their volumes count as in use.
# TYPE csi_volmgr_quarantined_volumes gauge
csi_volmgr_quarantined_volumes 1
# HELP csi_volmgr_renewal_overdue_seconds How long the most overdue renewal of a mount (tokens, requiresRepublish) is overdue; 0 if none is.
# TYPE csi_volmgr_renewal_overdue_seconds gauge
csi_volmgr_renewal_overdue_seconds 90
# HELP csi_volmgr_uncertain_volumes Number of volumes whose stage or mount is uncertain: a call's outcome is unknown.
# TYPE csi_volmgr_uncertain_volumes gauge
csi_volmgr_uncertain_volumes{driver_name="d.example"} 2
csi_volmgr_uncertain_volumes{driver_name="gone.example"} 0
csi_volmgr_uncertain_volumes{driver_name="kubernetes.io/secret"} 0
# HELP volume_manager_total_volumes Number of volumes, wanted (desired_state_of_world) or mounted (actual_state_of_world).
# TYPE volume_manager_total_volumes gauge
volume_manager_total_volumes{plugin_name="kubernetes.io/csi:d.example",state="actual_state_of_world"} 2
volume_manager_total_volumes{plugin_name="kubernetes.io/csi:d.example",state="desired_state_of_world"} 3
volume_manager_total_volumes{plugin_name="kubernetes.io/csi:gone.example",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/csi:gone.example",state="desired_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"} 1
volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// Items: O05.
func TestEndedCallsAreMeasuredUnderTheKubeletsNames(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for op := plan.Attach; op <= plan.Detach; op++ {
		m.Call(manager.EndedCall{Driver: "d.example", Op: op, TookNanos: time.Second})
	}
	m.Call(manager.EndedCall{Driver: "kubernetes.io/secret", Op: plan.Publish, Error: "no"})
	m.Call(manager.EndedCall{Driver: "d.example", Op: plan.Publish, Migrated: true})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, metric := range families[len(families)-1].GetMetric() { // sorted by name: after the gauges
		var labels []string
		for _, l := range metric.GetLabel() {
			labels = append(labels, l.GetValue())
		}
		got[strings.Join(labels, " ")] = true // sorted by label name: migrated, operation_name, status, volume_plugin
	}
	for _, want := range []string{
		"false volume_attach success kubernetes.io/csi:d.example", "false mount_device success kubernetes.io/csi:d.example",
		"false volume_mount success kubernetes.io/csi:d.example", "false volume_remount success kubernetes.io/csi:d.example",
		"false volume_fs_resize success kubernetes.io/csi:d.example", "false volume_unmount success kubernetes.io/csi:d.example",
		"false unmount_device success kubernetes.io/csi:d.example", "false volume_detach success kubernetes.io/csi:d.example",
		"false volume_mount fail-unknown kubernetes.io/secret", "true volume_mount success kubernetes.io/csi:d.example",
	} {
		if !got[want] {
			t.Errorf("no series %q among %v", want, got)
		}
	}
}

// Names and help texts pass Prometheus' own linter.
func TestLint(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	m.Call(manager.EndedCall{Driver: "d.example", Op: plan.Publish})
	if err := Register(r, shown{}, time.Now); err != nil {
		t.Fatal(err)
	}
	store, err := Journal(r, failing{})
	if err != nil {
		t.Fatal(err)
	}
	_ = store.Commit(t.Context(), nil) // fails, and is measured
	soonest := func() (time.Time, bool) { return now, true }
	if err := errors.Join(RegisterTokens(r, soonest, time.Now), RegisterSockets(r, func() map[string]bool { return map[string]bool{"/s": true} })); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Alerts use metrics and pages that exist.
func TestAlertsAreOfThisProgram(t *testing.T) {
	const tree = "../../../"
	b, err := os.ReadFile(tree + "deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := names()
	for _, name := range regexp.MustCompile(`csi_volmgr_\w+`).FindAllString(string(b), -1) {
		if !known[name] {
			t.Errorf("an alert is on %s, which there is not", name)
		}
	}
	pages := regexp.MustCompile(`runbook: (\S+)`).FindAllStringSubmatch(string(b), -1)
	if len(pages) != strings.Count(string(b), "alert: ") {
		t.Errorf("%d alerts name %d pages", strings.Count(string(b), "alert: "), len(pages))
	}
	for _, page := range pages {
		text, err := os.ReadFile(tree + page[1])
		if err != nil || !strings.Contains(string(text), "csi-volmgr explain") && !strings.Contains(string(text), "systemctl status") {
			t.Errorf("%s: %v, or it does not begin with what to look at", page[1], err)
		}
	}
}

// names returns the names of this package's metrics.
func names() map[string]bool {
	known := map[string]bool{"storage_operation_duration_seconds": true, "csi_volmgr_journal_write_seconds_count": true, "csi_volmgr_journal_recovered": true, "csi_volmgr_api_server_away_seconds": true}
	descs := make(chan *prometheus.Desc, 100)
	(&collector{}).Describe(descs)
	close(descs)
	for d := range descs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		known[name] = true
	}
	return known
}

// Each panel of the dashboard uses metrics that exist.
func TestDashboardIsOfThisProgram(t *testing.T) {
	b, err := os.ReadFile("../../../deploy/grafana/csi-volmgr.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Type, Title string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	known := names()
	// The metrics of internal/serve/stats, pkg/csiclient, and Prometheus's own.
	for _, name := range []string{"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes", "csi_operations_seconds", "up"} {
		known[name] = true
	}
	metric := regexp.MustCompile(`(\w+)\{`)
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		asked := 0
		for _, target := range p.Targets {
			for _, m := range metric.FindAllStringSubmatch(target.Expr, -1) {
				asked++
				name := strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_count")
				if !known[name] {
					t.Errorf("panel %q asks for %s, which there is not", p.Title, m[1])
				}
			}
		}
		if asked == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
	}
}

func TestStepsOfUnmountsAreCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []manager.EndedCall{
		{Driver: "d", Op: plan.Unpublish},
		{Driver: "d", Op: plan.Unpublish, Step: state.UnmountForce, Error: "busy"},
		{Driver: "d", Op: plan.Unpublish, Step: state.UnmountForce},
		{Driver: "d", Op: plan.Unstage, Step: state.UnmountLazy},
	} {
		m.Call(c)
	}
	const want = `
# HELP csi_volmgr_unmount_steps_total How often a volume was unmounted by force or lazily, by policy or by an operator; either may lose data.
# TYPE csi_volmgr_unmount_steps_total counter
csi_volmgr_unmount_steps_total{driver_name="d",status="fail-unknown",step="force"} 1
csi_volmgr_unmount_steps_total{driver_name="d",status="success",step="force"} 1
csi_volmgr_unmount_steps_total{driver_name="d",status="success",step="lazy"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "csi_volmgr_unmount_steps_total"); err != nil {
		t.Error(err)
	}
}

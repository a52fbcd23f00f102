package metrics

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// collector counts in the manager's snapshots when it is scraped, so an idle node pays nothing for it.
type collector struct {
	source Source
	now    func() time.Time
}

// desc returns the description of a metric: its name, help and labels.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

type descs struct {
	total, pods, held, failing, uncertain, doubtful, quarantined, oldest, overdue, up, inFlight,
	generation *prometheus.Desc
}

func (d descs) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		d.total, d.pods, d.held, d.failing, d.uncertain, d.doubtful, d.quarantined, d.oldest,
		d.overdue, d.up, d.inFlight, d.generation,
	}
}

func describe() descs {
	return descs{
		total: desc("volume_manager_total_volumes",
			"Number of volumes, wanted (desired_state_of_world) or mounted (actual_state_of_world).", "plugin_name", "state"),
		pods: desc("csi_volmgr_pods", "Number of pods: ready, waiting for volumes, or leaving.", "state"),
		held: desc("csi_volmgr_held_volumes",
			"Number of volumes that are not as wanted and have no call under way, by the step that waits and what it "+
				"waits for: the driver, the pause after a failure, or something else, which explain names.", "driver_name", "step",
			"waits_for"),
		failing: desc("csi_volmgr_failing_volumes", "Number of volumes whose last call failed.", "driver_name"),
		uncertain: desc("csi_volmgr_uncertain_volumes",
			"Number of volumes whose stage or mount is uncertain: a call's outcome is unknown.", "driver_name"),
		doubtful: desc("csi_volmgr_in_doubt_volumes",
			"Number of uncertain volumes for which no call is under way: the last one had no definite answer.", "driver_name"),
		quarantined: desc("csi_volmgr_quarantined_volumes",
			"Number of records that could not be read; their volumes count as in use."),
		oldest: desc("csi_volmgr_oldest_wait_seconds",
			"How long the volume with the longest wait has waited for its present step; 0 if none waits."),
		overdue: desc("csi_volmgr_renewal_overdue_seconds",
			"How long the most overdue renewal of a mount (tokens, requiresRepublish) is overdue; 0 if none is."),
		up: desc("csi_volmgr_driver_up", "1 while the driver answers, 0 while it is gone and has volumes here.",
			"driver_name"),
		inFlight: desc("csi_volmgr_calls_in_flight", "Number of calls under way.", "driver_name"),
		generation: desc("csi_volmgr_driver_starts_total", "How often the driver came up since the daemon started.",
			"driver_name"),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range describe().all() {
		ch <- one
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	d := describe()
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	volumes, drivers := c.source.Volumes(), c.source.Drivers()
	for name, v := range count(volumes) {
		gauge(d.total, v.wanted, plugin(name), "desired_state_of_world")
		gauge(d.total, v.mounted, plugin(name), "actual_state_of_world")
		gauge(d.failing, v.failing, string(name))
		gauge(d.uncertain, v.uncertain, string(name))
		gauge(d.doubtful, v.doubtful, string(name))
	}
	for h, n := range held(volumes, drivers) {
		gauge(d.held, n, string(h.driver), h.step, h.waitsFor)
	}
	quarantined := 0.0
	for _, v := range volumes {
		if v.Quarantined != "" {
			quarantined++
		}
	}
	gauge(d.quarantined, quarantined)
	gauge(d.overdue, overdue(volumes, c.now()).Seconds())
	states, oldest := podStates(c.source.Pods(), c.now())
	for state, n := range states {
		gauge(d.pods, n, state)
	}
	gauge(d.oldest, oldest.Seconds())
	for _, s := range drivers {
		up := 0.0
		if s.Up {
			up = 1
		}
		gauge(d.up, up, string(s.Name))
		gauge(d.inFlight, float64(s.Calls), string(s.Name))
		ch <- prometheus.MustNewConstMetric(d.generation, prometheus.CounterValue, float64(s.Generation), string(s.Name))
	}
}

// counts counts the volumes of one driver.
type counts struct{ wanted, mounted, failing, uncertain, doubtful float64 }

func count(volumes []manager.VolumeStatus) map[state.DriverName]counts {
	out := map[state.DriverName]counts{}
	for _, v := range volumes {
		if v.Quarantined != "" {
			continue // the record does not say whose it is
		}
		n := out[v.Volume.Spec.Driver]
		n.wanted += one(len(v.Wanted) > 0)
		mounted, uncertain, failing := inspect(v.Volume)
		n.mounted += one(mounted)
		n.uncertain += one(uncertain)
		n.doubtful += one(uncertain && v.Call == plan.Op{})
		n.failing += one(failing)
		out[v.Volume.Spec.Driver] = n
	}
	return out
}

func inspect(v state.Volume) (mounted, uncertain, failing bool) {
	doubtful := func(p state.Phase) bool { return p == state.Entering || p == state.Leaving }
	uncertain = doubtful(v.Stage.Phase)
	failing = v.Attach.Failed != nil || v.Stage.Failed != nil || v.ExpandFailed != nil
	for _, m := range v.Mounts {
		mounted = mounted || m.Phase == state.Present
		uncertain = uncertain || doubtful(m.Phase)
		failing = failing || m.Failed != nil
	}
	return mounted, uncertain, failing
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func podStates(pods []manager.PodStatus, now time.Time) (states map[string]float64, oldest time.Duration) {
	states = map[string]float64{"ready": 0, "waiting": 0, "leaving": 0}
	for _, p := range pods {
		switch {
		case !p.Listed:
			states["leaving"]++
		case p.Ready:
			states["ready"]++
		default:
			states["waiting"]++
		}
		for _, v := range p.Volumes {
			if v.Step != plan.None && !v.Since.IsZero() {
				oldest = max(oldest, now.Sub(v.Since))
			}
		}
	}
	return states, oldest
}

// Package metrics says in numbers how the volumes of a node stand, under the
// names that dashboards of the kubelet's volume manager use already, and under
// names of its own for what that one cannot tell.
//
// Owns: the metrics that are made from the manager's snapshots and ended calls.
// Those of a driver's calls are pkg/csiclient's.
//
// Does not: have a label whose values are names of pods, claims or volumes: a
// driver's name, a verb and a phase are all, so that their number is bounded.
//
// Concurrency: a [Metrics] may be used by any goroutine.
package metrics

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// Source is what the manager shows.
type Source interface {
	Volumes() []manager.VolumeStatus
	Pods() []manager.PodStatus
	Drivers() []manager.DriverStatus
}

// Metrics measures calls as they end, and everything else when it is scraped.
type Metrics struct {
	operations    *prometheus.HistogramVec
	steps         *prometheus.CounterVec
	cleaned, left prometheus.Gauge
	// images are mounts of image volumes asked for, made, and failed.
	images [3]prometheus.Counter
}

// New registers the histogram of ended calls, the gauges of pods' directories and
// the counters of image volumes.
func New(r prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "storage_operation_duration_seconds",
		Help:    "How long an operation on a volume took, the look at its effect included.",
		Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	m.cleaned = gauge("kubelet_orphan_pod_cleaned_volumes",
		"Number of directories of pods that are gone that the last look removed.")
	m.left = gauge("kubelet_orphan_pod_cleaned_volumes_errors",
		"Number of directories of pods that are gone that hold something, and so stay.")
	m.steps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "csi_volmgr_unmount_steps_total",
		Help: "How often a volume was unmounted by force or lazily, by policy or by an operator; either may lose data.",
	}, []string{"driver_name", "step", "status"})
	err := errors.Join(r.Register(m.operations), r.Register(m.steps), r.Register(m.cleaned), r.Register(m.left))
	for i, name := range []string{"requested_total", "mounted_succeed_total", "mounted_errors_total"} {
		what := []string{"were asked for", "succeeded", "failed"}[i]
		m.images[i] = prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_image_volume_" + name,
			Help: "Number of mounts of image volumes that " + what + ".",
		})
		err = errors.Join(err, r.Register(m.images[i]))
	}
	return m, err
}

// Leftovers takes in a look at the directories of pods that are gone.
func (m *Metrics) Leftovers(removed, left int) {
	m.cleaned.Set(float64(removed))
	m.left.Set(float64(left))
}

// Call measures a call that ended.
func (m *Metrics) Call(c manager.EndedCall) {
	status := "success"
	if c.Error != "" {
		status = "fail-unknown"
	}
	if c.Step != state.UnmountNormal {
		m.steps.WithLabelValues(string(c.Driver), c.Step.String(), status).Inc()
	}
	if c.Driver == kind.Image && c.Op == plan.Publish {
		m.images[0].Inc()
		if c.Error == "" {
			m.images[1].Inc()
		} else {
			m.images[2].Inc()
		}
	}
	m.operations.WithLabelValues(plugin(c.Driver), operation(c.Op), status,
		strconv.FormatBool(c.Migrated)).Observe(c.TookNanos.Seconds())
}

// plugin is a driver's name as the kubelet labels it.
func plugin(d state.DriverName) string { return named("kubernetes.io/csi:", d) }

// named is a built-in kind's name, and a driver's after the prefix.
func named(prefix string, d state.DriverName) string {
	if strings.HasPrefix(string(d), kind.Prefix) {
		return string(d)
	}
	return prefix + string(d)
}

// operation is a verb as the kubelet names it. There a mount is one operation
// with its staging; here they are two, and staging is mount_device.
func operation(k plan.Kind) string {
	switch k {
	case plan.Attach:
		return "volume_attach"
	case plan.Detach:
		return "volume_detach"
	case plan.Stage:
		return "mount_device"
	case plan.Unstage:
		return "unmount_device"
	case plan.Publish:
		return "volume_mount"
	case plan.Republish:
		return "volume_remount"
	case plan.Unpublish:
		return "volume_unmount"
	case plan.Expand:
		return "volume_fs_resize"
	default:
		return strings.ToLower(k.String())
	}
}

// Register adds what is counted at each scrape.
func Register(r prometheus.Registerer, s Source, now func() time.Time) error {
	return r.Register(&collector{source: s, now: now})
}

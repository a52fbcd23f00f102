// Package metrics reports the state of a node's volumes as numbers, under the names that dashboards of
// the kubelet's volume manager already use, and under names of its own for what that one does not report.
//
// Owns: the metrics that are made from the manager's snapshots and ended calls. Those of a driver's calls
// are pkg/csiclient's.
//
// Does not: use labels with names of pods, claims or volumes. Labels have a driver's name, a verb or a
// phase, so that the number of series is bounded.
//
// Concurrency: a [Metrics] may be used by any goroutine.
package metrics

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// Source is the part of the manager that is counted.
type Source interface {
	Volumes() []manager.VolumeStatus
	Pods() []manager.PodStatus
	Drivers() []manager.DriverStatus
}

// Metrics has the metrics that are updated as things happen; others are computed at each scrape.
type Metrics struct {
	operations    *prometheus.HistogramVec
	steps         *prometheus.CounterVec
	cleaned, left prometheus.Gauge
	// images counts the mounts of image volumes that were requested, made, and failed.
	images [3]prometheus.Counter
}

// New registers the histogram of ended calls, the gauges of pods' directories and the counters of image
// volumes.
func New(r prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "storage_operation_duration_seconds",
		Help:    "How long an operation on a volume took, including the check of its effect.",
		Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"volume_plugin", "operation_name", "status", "migrated"})}
	m.cleaned = gauge("kubelet_orphan_pod_cleaned_volumes",
		"Number of directories of removed pods that the last look removed.")
	m.left = gauge("kubelet_orphan_pod_cleaned_volumes_errors",
		"Number of directories of removed pods that stay because they hold something.")
	m.steps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "csi_volmgr_unmount_steps_total",
		Help: "How often a volume was unmounted by force or lazily, by policy or by an operator; either may lose data.",
	}, []string{"driver_name", "step", "status"})
	err := errors.Join(r.Register(m.operations), r.Register(m.steps), r.Register(m.cleaned), r.Register(m.left))
	for i, name := range []string{"requested_total", "mounted_succeed_total", "mounted_errors_total"} {
		what := []string{"were requested", "succeeded", "failed"}[i]
		m.images[i] = prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_image_volume_" + name,
			Help: "Number of mounts of image volumes that " + what + ".",
		})
		err = errors.Join(err, r.Register(m.images[i]))
	}
	return m, err
}

// Leftovers records the result of a look at the directories of removed pods.
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

// plugin returns a driver's name as the kubelet labels it.
func plugin(d state.DriverName) string { return named("kubernetes.io/csi:", d) }

// named returns a built-in kind's name as it is, and a driver's name after the prefix.
func named(prefix string, d state.DriverName) string {
	if strings.HasPrefix(string(d), kind.Prefix) {
		return string(d)
	}
	return prefix + string(d)
}

// operation returns the kubelet's name for a verb. There a mount is one operation with its staging; here
// they are two, and staging is mount_device.
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

// Register registers the metrics that are computed at each scrape.
func Register(r prometheus.Registerer, s Source, now func() time.Time) error {
	return r.Register(&collector{source: s, now: now})
}

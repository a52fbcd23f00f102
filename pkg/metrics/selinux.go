package metrics

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// labels counts, at each scrape, the volumes that are mounted with a pod's SELinux
// label or could be: under the kubelet's names, which end in _total and are gauges.
type labels struct {
	source                     Source
	admitted, errors, warnings *prometheus.Desc
}

// RegisterSELinux adds what is counted of SELinux labels.
func RegisterSELinux(r prometheus.Registerer, s Source) error {
	of := func(name, help string) *prometheus.Desc {
		return desc("volume_manager_selinux_"+name+"_total", help, "volume_plugin", "access_mode")
	}
	return r.Register(&labels{
		source: s,
		admitted: of("volumes_admitted",
			"Number of volumes for which a pod asks for an SELinux label that they can be mounted with, each counted once."),
		errors: of("volume_context_mismatch_errors",
			"Number of pods that wait because the volume is mounted with another SELinux label."),
		warnings: of("volume_context_mismatch_warnings",
			"Number of pods that have a volume with another SELinux label than other pods have, which they would wait for if "+
				"volumes of its access mode were mounted with labels."),
	})
}

// Describe implements [prometheus.Collector].
func (l *labels) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.admitted
	ch <- l.errors
	ch <- l.warnings
}

// Collect implements [prometheus.Collector].
func (l *labels) Collect(ch chan<- prometheus.Metric) {
	type key struct{ plugin, mode string }
	type counts struct{ admitted, errors, warnings float64 }
	all := map[key]counts{}
	for _, v := range l.source.Volumes() {
		if v.SELinux == nil {
			continue
		}
		k := key{"kubernetes.io/csi/" + string(v.Volume.Spec.Driver), mode(v.Volume.Spec.Value())}
		c := all[k]
		c.admitted += one(v.SELinux.Label != "")
		if n := float64(len(v.SELinux.Conflicts)); v.SELinux.Applied {
			c.errors += n
		} else {
			c.warnings += n
		}
		all[k] = c
	}
	for k, c := range all {
		for d, value := range map[*prometheus.Desc]float64{
			l.admitted: c.admitted, l.errors: c.errors,
			l.warnings: c.warnings,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, k.plugin, k.mode)
		}
	}
}

// mode is how the kubelet abbreviates a volume's access modes: the widest of them.
func mode(s state.Spec) string {
	has := func(m state.AccessMode) bool { return slices.Contains(s.AccessModes, m) }
	switch {
	case has(state.ReadWriteMany):
		return "RWX"
	case has(state.ReadOnlyMany):
		return "ROX"
	case s.Exclusive():
		return "RWOP"
	default:
		return "RWO"
	}
}

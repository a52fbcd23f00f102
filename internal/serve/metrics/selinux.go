package metrics

import (
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// labels counts, at each scrape, the volumes that are or could be mounted with a pod's SELinux label, and
// the pods that ask for none or for several, under the seven names of the kubelet, which end in _total
// and are gauges. The kubelet's grow with each retry of a waiting pod; these say how many there are now.
type labels struct {
	source   Source
	admitted *prometheus.Desc
	// In each pair, errors come first, for volumes that are mounted with labels, then warnings.
	containers, pods, volumes [2]*prometheus.Desc
}

// RegisterSELinux registers the metrics of SELinux labels.
func RegisterSELinux(r prometheus.Registerer, s Source) error {
	of := func(name, errors, warnings string, labels ...string) [2]*prometheus.Desc {
		return [2]*prometheus.Desc{
			desc("volume_manager_selinux_"+name+"_errors_total", errors, labels...),
			desc("volume_manager_selinux_"+name+"_warnings_total", warnings, labels...),
		}
	}
	const would = " They would wait if volumes of its access mode were mounted with labels."
	return r.Register(&labels{
		source: s,
		admitted: desc("volume_manager_selinux_volumes_admitted_total",
			"Number of volumes for which a pod asks for an SELinux label that they can be mounted with, each counted once.",
			"volume_plugin", "access_mode"),
		containers: of("container",
			"Number of volumes of pods that wait because a container's seLinuxOptions make no label.",
			"Number of volumes of pods with a container whose seLinuxOptions make no label."+would, "access_mode"),
		pods: of("pod_context_mismatch",
			"Number of volumes of pods that wait because the pod's containers ask for different SELinux labels.",
			"Number of volumes of pods whose containers ask for different SELinux labels."+would, "access_mode"),
		volumes: of("volume_context_mismatch",
			"Number of pods that wait because the volume is mounted with another SELinux label.",
			"Number of pods that have a volume with another SELinux label than other pods have, which they would wait for if "+
				"volumes of its access mode were mounted with labels.", "volume_plugin", "access_mode"),
	})
}

// Describe implements [prometheus.Collector].
func (l *labels) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.admitted
	for _, d := range [...][2]*prometheus.Desc{l.containers, l.pods, l.volumes} {
		ch <- d[0]
		ch <- d[1]
	}
}

// Collect implements [prometheus.Collector].
func (l *labels) Collect(ch chan<- prometheus.Metric) {
	l.collectVolumes(ch)
	l.collectPods(ch)
}

func (l *labels) collectVolumes(ch chan<- prometheus.Metric) {
	type key struct{ plugin, mode string }
	type counts struct{ admitted, errors, warnings float64 }
	all := map[key]counts{}
	for _, v := range l.source.Volumes() {
		if v.SELinux == nil {
			continue
		}
		spec := v.Volume.Spec.Value()
		k := key{pluginOf(spec.Driver), mode(spec.AccessModes)}
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
			l.admitted: c.admitted, l.volumes[0]: c.errors, l.volumes[1]: c.warnings,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, k.plugin, k.mode)
		}
	}
}

func (l *labels) collectPods(ch chan<- prometheus.Metric) {
	all := map[string]map[*prometheus.Desc]float64{}
	for _, p := range l.source.Pods() {
		for _, v := range p.Volumes {
			if v.SELinux == nil || v.SELinux.Fault == "" {
				continue
			}
			m := mode(v.SELinux.AccessModes)
			if all[m] == nil {
				all[m] = map[*prometheus.Desc]float64{
					l.containers[0]: 0, l.containers[1]: 0, l.pods[0]: 0, l.pods[1]: 0,
				}
			}
			of := l.containers
			if v.SELinux.Fault == state.SELinuxContainers {
				of = l.pods
			}
			if v.SELinux.Applied {
				all[m][of[0]]++
			} else {
				all[m][of[1]]++
			}
		}
	}
	for m, counts := range all {
		for d, value := range counts {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, m)
		}
	}
}

// pluginOf returns a driver's name as the kubelet's SELinux metrics have it.
func pluginOf(d state.DriverName) string { return named("kubernetes.io/csi/", d) }

// mode returns the kubelet's abbreviation of a volume's access modes: the widest of them.
func mode(modes []state.AccessMode) string {
	has := func(m state.AccessMode) bool { return slices.Contains(modes, m) }
	switch {
	case has(state.ReadWriteMany):
		return "RWX"
	case has(state.ReadOnlyMany):
		return "ROX"
	case len(modes) == 1 && has(state.ReadWriteOncePod):
		return "RWOP"
	default:
		return "RWO"
	}
}

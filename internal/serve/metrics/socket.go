package metrics

import "github.com/prometheus/client_golang/prometheus"

// sockets reports the registration sockets when it is scraped.
type sockets struct {
	// registered returns, for each path, whether its driver is registered.
	registered func() map[string]bool
	total      *prometheus.Desc
}

// RegisterSockets registers the metric of registration sockets under the kubelet's name: a socket counts
// as desired_state_of_world while it exists, and as actual_state_of_world while its driver is registered.
func RegisterSockets(r prometheus.Registerer, registered func() map[string]bool) error {
	return r.Register(sockets{
		registered,
		desc("plugin_manager_total_plugins",
			"Number of registration sockets that exist (desired_state_of_world), and of those whose driver is "+
				"registered (actual_state_of_world).", "socket_path", "state"),
	})
}

// Describe implements [prometheus.Collector].
func (s sockets) Describe(ch chan<- *prometheus.Desc) { ch <- s.total }

// Collect implements [prometheus.Collector].
func (s sockets) Collect(ch chan<- prometheus.Metric) {
	for path, registered := range s.registered() {
		ch <- prometheus.MustNewConstMetric(s.total, prometheus.GaugeValue, 1, path, "desired_state_of_world")
		if registered {
			ch <- prometheus.MustNewConstMetric(s.total, prometheus.GaugeValue, 1, path, "actual_state_of_world")
		}
	}
}

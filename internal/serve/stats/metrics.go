package stats

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// The kubelet's names and labels: one sample per claim.
var (
	labels = []string{"namespace", "persistentvolumeclaim"}

	capacity   = desc("capacity_bytes", "Capacity of the volume in bytes.")
	available  = desc("available_bytes", "Bytes of the volume that are available.")
	used       = desc("used_bytes", "Bytes of the volume that are used.")
	inodes     = desc("inodes", "Most inodes of the volume.")
	inodesFree = desc("inodes_free", "Inodes of the volume that are free.")
	inodesUsed = desc("inodes_used", "Inodes of the volume that are used.")
	abnormal   = desc("health_status_abnormal",
		"1 if the driver says that something is wrong with the volume, 0 if it says that nothing is.")

	// The kubelet's name since Kubernetes 1.37.
	storage = prometheus.NewDesc("csi_node_storage_health_status",
		"1 for what a driver says is wrong with the storage behind it, as seen from this node.",
		[]string{"driver_name", "status", "reason"}, nil)
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{capacity, available, used, inodes, inodesFree, inodesUsed, abnormal, storage} {
		ch <- d
	}
	c.took.Describe(ch)
}

// Collect implements prometheus.Collector. It reports the last answers and waits for none. Figures are
// refreshed while it is called now and then. Figures that no driver has renewed since are not reported.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	since := c.want()
	c.took.Collect(ch)
	seen := map[string]bool{}
	for _, s := range c.copies() {
		if IsStorageKey(s.Key) {
			s.collectStorage(ch)
		}
		namespace, name, ok := strings.Cut(s.Claim, "/")
		if !ok || seen[s.Claim] || s.At.IsZero() {
			continue
		}
		seen[s.Claim] = true
		send := func(d *prometheus.Desc, v int64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), namespace, name)
		}
		renewed := s.good.After(since)
		if renewed && s.Bytes != (Usage{}) {
			send(capacity, s.Bytes.Total)
			send(available, s.Bytes.Available)
			send(used, s.Bytes.Used)
		}
		if renewed && s.Inodes != (Usage{}) {
			send(inodes, s.Inodes.Total)
			send(inodesFree, s.Inodes.Available)
			send(inodesUsed, s.Inodes.Used)
		}
		switch s.Health {
		case Abnormal:
			send(abnormal, 1)
		case Healthy:
			send(abnormal, 0)
		}
	}
}

// collectStorage sends a sample for each kind of problem with a driver's storage: several problems may
// differ only in the volumes that they concern.
func (s Status) collectStorage(ch chan<- prometheus.Metric) {
	type key struct{ status, reason string }
	sent := map[key]bool{}
	for _, c := range s.Conditions {
		if k := (key{c.Word(), c.Reason}); !sent[k] {
			sent[k] = true
			ch <- prometheus.MustNewConstMetric(storage, prometheus.GaugeValue, 1, string(s.Driver), k.status, k.reason)
		}
	}
}

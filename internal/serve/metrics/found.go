package metrics

import (
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/prometheus/client_golang/prometheus"
)

// RegisterFound registers what was found at the start, under the kubelet's names for what it
// reconstructs. Here each record counts, there each directory.
func RegisterFound(r prometheus.Registerer, found func() manager.Found) error {
	for _, c := range []struct {
		name, help string
		value      func(manager.Found) int
	}{
		{"reconstruct_volume_operations_total", "Number of volumes that were found at the start.", func(f manager.Found) int {
			return f.Volumes
		}},
		{
			"reconstruct_volume_operations_errors_total",
			"Number of volumes that were found at the start and whose record could not be read.", func(f manager.Found) int {
				return f.Unreadable
			},
		},
		{
			"csi_volmgr_found_changed_volumes_total",
			"Number of volumes found at the start whose mounts had changed since the daemon left them.",
			func(f manager.Found) int { return f.Changed },
		},
	} {
		counter := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: c.name, Help: c.help}, func() float64 {
			return float64(c.value(found()))
		})
		if err := r.Register(counter); err != nil {
			return err
		}
	}
	return nil
}

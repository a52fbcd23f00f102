package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// RegisterRecovery registers whether the journal may have lost records, and how many mounts have none
// since.
func RegisterRecovery(r prometheus.Registerer, recovery func() state.Recovery,
	unrecorded func() manager.Unrecorded,
) error {
	lost := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_volmgr_journal_recovered",
		Help: "1 after the journal may have lost records, until an operator accepts that; else 0.",
	}, func() float64 {
		if !recovery().Lost() {
			return 0
		}
		return 1
	})
	mounts := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_volmgr_unrecorded_mounts",
		Help: "Number of volume mounts without a record after the journal may have lost records; they count as in use.",
	}, func() float64 { return float64(len(unrecorded().Places)) })
	for _, c := range []prometheus.Collector{lost, mounts} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

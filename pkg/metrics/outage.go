package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterOutage adds for how long the API server has been away; since is zero while
// it is not.
func RegisterOutage(r prometheus.Registerer, since func() time.Time, now func() time.Time) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_volmgr_api_server_away_seconds",
		Help: "For how long the API server has not answered this node as a whole; 0 while it does, and without a cluster.",
	}, func() float64 {
		began := since()
		if began.IsZero() {
			return 0
		}
		return max(now().Sub(began), 0).Seconds()
	}))
}

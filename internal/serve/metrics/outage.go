package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterOutage registers how long the API server has been away. since returns zero while it is not.
func RegisterOutage(r prometheus.Registerer, since func() time.Time, now func() time.Time) error {
	return r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "csi_volmgr_api_server_away_seconds",
		Help: "How long the API server has been away; 0 while it answers, and without a cluster.",
	}, func() float64 {
		began := since()
		if began.IsZero() {
			return 0
		}
		return max(now().Sub(began), 0).Seconds()
	}))
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tokens tells of the tokens that are kept when it is scraped.
type tokens struct {
	// soonest is when the one that expires first does; ok is false where there is none.
	soonest func() (at time.Time, ok bool)
	now     func() time.Time
	expiry  *prometheus.Desc
}

// RegisterTokens adds when the tokens that are kept expire.
func RegisterTokens(r prometheus.Registerer, soonest func() (time.Time, bool), now func() time.Time) error {
	return r.Register(tokens{
		soonest, now,
		desc("csi_volmgr_token_expiry_seconds",
			"In how many seconds the service account token that expires first does, of those that are kept for volumes; it is "+
				"renewed before. No sample where none is kept."),
	})
}

// Describe implements [prometheus.Collector].
func (t tokens) Describe(ch chan<- *prometheus.Desc) { ch <- t.expiry }

// Collect implements [prometheus.Collector].
func (t tokens) Collect(ch chan<- prometheus.Metric) {
	if at, ok := t.soonest(); ok {
		ch <- prometheus.MustNewConstMetric(t.expiry, prometheus.GaugeValue, at.Sub(t.now()).Seconds())
	}
}

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tokens reports the expiry of cached tokens when it is scraped.
type tokens struct {
	// soonest returns when the first token expires; ok is false if there is none.
	soonest func() (at time.Time, ok bool)
	now     func() time.Time
	expiry  *prometheus.Desc
}

// RegisterTokens registers the metric of when the cached tokens expire.
func RegisterTokens(r prometheus.Registerer, soonest func() (time.Time, bool), now func() time.Time) error {
	return r.Register(tokens{
		soonest, now,
		desc("csi_volmgr_token_expiry_seconds",
			"Seconds until the first of the volumes' service account tokens expires; it is renewed before. "+
				"No sample without a token."),
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

package metrics

import (
	"context"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/prometheus/client_golang/prometheus"
)

// journal is a Store that measures the writes of another.
type journal struct {
	manager.Store
	writes *prometheus.HistogramVec
}

// Journal returns store with its writes measured.
func Journal(r prometheus.Registerer, store manager.Store) (manager.Store, error) {
	j := journal{store, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_volmgr_journal_write_seconds",
		Help:    "How long a durable write of the journal took, for any number of records.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	}, []string{"status"})}
	return j, r.Register(j.writes)
}

// Commit implements [manager.Store].
func (j journal) Commit(ctx context.Context, changes map[state.VolumeID]*state.Volume) error {
	began := time.Now()
	err := j.Store.Commit(ctx, changes)
	status := "success"
	if err != nil {
		status = "fail"
	}
	j.writes.WithLabelValues(status).Observe(time.Since(began).Seconds())
	return err
}

package server

import (
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/stats"
)

// askedLong is after how long without an answer it is said that there is none.
const askedLong = 30 * time.Second

// explainHealth adds what the driver says is wrong with a volume or with its
// storage, and since when it has not answered.
func (f Facts) explainHealth(e *Explanation, key string) {
	for _, s := range f.Stats {
		if s.Key != key {
			continue
		}
		if s.Health == stats.Abnormal {
			for _, c := range s.Conditions {
				e.add("health", "driver %s says: %s (for %s, as of %s ago)", s.Driver, c, f.ago(s.HealthSince), f.ago(s.At))
			}
			e.worsen(Waiting)
		}
		if !s.Asking.IsZero() && f.Now.Sub(s.Asking) > askedLong {
			e.add("health", "not known: driver %s was asked %s ago and has not answered", s.Driver, f.ago(s.Asking))
		}
	}
}

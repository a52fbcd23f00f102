package server

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age returns the time since t in kubectl's form ("14m", "2m10s"); "?" if t is zero.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return "?"
	}
	return duration.HumanDuration(max(now.Sub(t), 0))
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func readOnly(ro bool) string {
	if ro {
		return ", read-only"
	}
	return ""
}

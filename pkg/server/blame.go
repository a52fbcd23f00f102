package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
)

// Blame is one line with all that is known of why a pod's volume is not as
// wanted: phase, step, driver, attempts, last error with its gRPC code and age,
// next try, and what it is blocked by.
func Blame(v manager.PodVolumeStatus, now time.Time) string {
	parts := []string{"phase " + v.Phase.String()}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if v.Step != "" {
		add("step %s", v.Step)
	}
	if !v.Since.IsZero() {
		add("for %s", Age(v.Since, now))
	}
	if v.Driver != "" {
		add("driver %s", v.Driver)
	}
	if v.Claim != "" {
		add("claim %s", v.Claim)
	}
	if r := v.Retry; r.Attempts > 0 {
		add("%s", tries(r, now))
		add("last error: %s", Failure(r))
		switch {
		case r.Final:
			add("not tried again by itself")
		case r.NotBefore.After(now):
			add("next try in %s", Age(now, r.NotBefore))
		default:
			add("next try now")
		}
	}
	if v.BlockedBy != "" {
		add("blocked by: %s", v.BlockedBy)
	}
	return strings.Join(v.Names, ",") + ": " + strings.Join(parts, "; ")
}

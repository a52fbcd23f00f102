package main

import (
	"strings"
	"testing"
)

// What the daemon does not know is perhaps the cluster's: then the error says how the cluster has it done.
func TestTheClustersClaimsAreSaidToBeTheClusters(t *testing.T) {
	for command, want := range map[string]string{
		"snapshot create pvc/absent":        "kubectl apply -f FILE, with a VolumeSnapshot",
		"clone pvc/absent pvc/copy":         "or a claim with a dataSource",
		"snapshot restore absent pvc/other": "a claim whose dataSource names the snapshot",
		"explain snapshot absent":           "kubectl describe volumesnapshot absent -n default",
	} {
		for _, cluster := range []bool{false, true} {
			s := mounted(fixed)
			s.cluster = cluster
			r := newRig(t, s)
			code := r.do(t, strings.Fields(command)...)
			if text := r.stdout.String() + r.stderr.String(); code != 1 || strings.Contains(text, want) != cluster {
				t.Errorf("%s, in a cluster %v: exit code %d: %s", command, cluster, code, text)
			}
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
)

// A claim that the daemon does not know may be the cluster's: then the error says how to do it in the cluster.
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

// No hook runs for a snapshot that the daemon refuses, such as one of a claim of the cluster.
func TestNoHookRunsForASnapshotThatIsRefused(t *testing.T) {
	for _, args := range [][]string{{"pvc/data"}, {"-l", "app=new"}} {
		r := newRig(t, mounted(fixed))
		r.backend.err = fmt.Errorf("%w: claim default/data is of the cluster", server.ErrConflict)
		args = append([]string{"snapshot", "create", "--name=new", "--exec-before=echo before", "--exec-after=echo after"}, args...)
		if code := r.do(t, args...); code != 1 || r.stdout.String() != "" || !strings.Contains(r.stderr.String(), "is of the cluster") {
			t.Errorf("%q: exit code %d: %s%s", args, code, r.stdout.String(), r.stderr.String())
		}
		if len(r.backend.asked) != 1 || !strings.HasPrefix(r.backend.asked[0], "check ") || !strings.Contains(r.backend.asked[0], `\"name\":\"new\"`) {
			t.Errorf("%q: the daemon was asked %q", args, r.backend.asked)
		}
	}
}

// If the driver's Controller service reports a problem, get stats says that it is that service.
func TestStatsNameTheControllerService(t *testing.T) {
	r := newRig(t, mounted(fixed))
	var out bytes.Buffer
	for _, controller := range []bool{false, true} {
		out.Reset()
		s := stats.Status{Key: "d^v", Health: stats.Abnormal, At: fixed, Conditions: []stats.Condition{{Status: "DATA_LOSS", Controller: controller}}}
		if err := writeTable(&out, statColumns, []stats.Status{s}, r.look(formWide)); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, "DATA_LOSS") || strings.Contains(got, "Controller service: DATA_LOSS") != controller {
			t.Errorf("controller %v: %s", controller, got)
		}
	}
}

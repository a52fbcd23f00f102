package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/storageid"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// The program is replaced by a newer one and then by the older one again, with volumes of
// each kind mounted. No call is made, no mount changes, and each program removes the
// volumes of the other.
//
// Faults: A061.
func TestUpgradeAndBackWithLiveMounts(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	shared := filepath.Join(n.Dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	n.flags = []string{"--host-path-allow", shared}
	n.program, n.StorageID = before, "" // the older program has no such flag
	n.begin(csistrict.Script{})
	n.Apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: low}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {key: s3cret}")
	var pods, claims []string
	run := func(name string) {
		t.Helper()
		disk := volume{Name: "disk", Source: "persistentVolumeClaim: {claimName: disk-" + name + "}", Block: true}
		n.Apply(want{name: "data-" + name}.String(), want{name: "disk-" + name, mode: "Block"}.String(), harness.Pod(name, fromClaim("data-"+name), disk,
			volume{Name: "inline", Source: "csi: {driver: " + driverName + "}"},
			volume{Name: "scratch", Source: "emptyDir: {}"}, volume{Name: "memory", Source: "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
			volume{Name: "settings", Source: "configMap: {name: settings}"}, volume{Name: "keys", Source: "secret: {secretName: keys}"},
			volume{Name: "all", Source: "projected: {sources: [{configMap: {name: settings}}, {secret: {name: keys}}]}"},
			volume{Name: "pod", Source: "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}"},
			volume{Name: "host", Source: "hostPath: {path: " + shared + "}"}))
		n.Mounted(name)
		n.write(filepath.Join(n.HostPath(name, "scratch"), "f"), name)
		pods, claims = append(pods, name), append(claims, "data-"+name, "disk-"+name)
	}
	for i := range 3 {
		run(fmt.Sprintf("before-%d", i))
	}
	replace := func(by string) {
		t.Helper()
		n.NoUnwanted() // a deletion makes its last calls now, and not beside those that are counted
		table, calls, loops := n.table(), n.nodeCalls(), n.Loops()
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
		for _, p := range pods {
			n.verified(p)
			n.wantFile(filepath.Join(n.HostPath(p, "scratch"), "f"), p)
		}
		if after := n.table(); !slices.Equal(table, after) {
			t.Errorf("the mount table changed:\n%s\nbecame\n%s", strings.Join(table, "\n"), strings.Join(after, "\n"))
		}
		if after := n.nodeCalls(); !slices.Equal(calls, after) {
			t.Errorf("calls made: %q", after[len(calls):])
		}
		if after := n.Loops(); !slices.Equal(loops, after) {
			t.Errorf("loop devices: %q became %q", loops, after)
		}
	}
	replace("") // the program of this tree
	if r := storageid.Read(n.Path("state")).Chosen; r == nil || r.ID != "" {
		t.Errorf("the names of volumes change: the storage id is %v", r)
	}
	n.DeletePods(pods[0])
	pods = pods[1:]
	run("after-0")
	replace(before)
	n.DeletePods("after-0", pods[0])
	pods = pods[1 : len(pods)-1]
	replace("")
	n.DeletePods(pods...)
	n.DeleteClaims(claims...)
	n.verdict()
}

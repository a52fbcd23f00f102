package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// buildBefore builds the program as it was at a commit or tag of this repository.
func buildBefore(t *testing.T, revision string) string {
	t.Helper()
	dir := t.TempDir()
	pack := exec.CommandContext(t.Context(), "git", "archive", "--output", filepath.Join(dir, "before.tar"), revision)
	pack.Dir = "../.."
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("UPGRADE_FROM=%s: %v\n%s", revision, err, out)
	}
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "csi-volmgr")
	for _, args := range [][]string{
		{"tar", "-x", "-C", tree, "-f", filepath.Join(dir, "before.tar")},
		{"go", "build", "-C", tree, "-o", binary, "./cmd/csi-volmgr"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	return binary
}

// The program is replaced by a newer one and by the one before it again, with
// volumes of each kind mounted: nothing is called and no mount changes, and both
// take away what the other has made.
//
// Faults: A061.
func TestUpgradeAndBackWithLiveMounts(t *testing.T) {
	revision := os.Getenv("UPGRADE_FROM")
	if revision == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	before := buildBefore(t, revision)
	n := newPlace(t)
	shared := filepath.Join(n.dir, "shared")
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	n.flags = []string{"--host-path-allow", shared}
	n.program = before
	n.begin(csistrict.Script{})
	n.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: low}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {key: s3cret}")
	var pods, claims []string
	run := func(name string) {
		t.Helper()
		disk := volume{name: "disk", source: "persistentVolumeClaim: {claimName: disk-" + name + "}", block: true}
		n.apply(want{name: "data-" + name}.String(), want{name: "disk-" + name, mode: "Block"}.String(), pod(name, fromClaim("data-"+name), disk,
			volume{name: "inline", source: "csi: {driver: " + driverName + "}"},
			volume{name: "scratch", source: "emptyDir: {}"}, volume{name: "memory", source: "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
			volume{name: "settings", source: "configMap: {name: settings}"}, volume{name: "keys", source: "secret: {secretName: keys}"},
			volume{name: "all", source: "projected: {sources: [{configMap: {name: settings}}, {secret: {name: keys}}]}"},
			volume{name: "pod", source: "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}"},
			volume{name: "host", source: "hostPath: {path: " + shared + "}"}))
		n.mounted(name)
		n.write(filepath.Join(n.hostPath(name, "scratch"), "f"), name)
		pods, claims = append(pods, name), append(claims, "data-"+name, "disk-"+name)
	}
	for i := range 3 {
		run(fmt.Sprintf("before-%d", i))
	}
	replace := func(by string) {
		t.Helper()
		table, calls, loops := n.table(), n.nodeCalls(), n.loops()
		n.daemon.ask()
		n.program = by
		n.start()
		n.driverUp()
		for _, p := range pods {
			n.verified(p)
			n.wantFile(filepath.Join(n.hostPath(p, "scratch"), "f"), p)
		}
		if after := n.table(); !slices.Equal(table, after) {
			t.Errorf("the mount table changed:\n%s\nbecame\n%s", strings.Join(table, "\n"), strings.Join(after, "\n"))
		}
		if after := n.nodeCalls(); !slices.Equal(calls, after) {
			t.Errorf("calls made: %q", after[len(calls):])
		}
		if after := n.loops(); !slices.Equal(loops, after) {
			t.Errorf("loop devices: %q became %q", loops, after)
		}
	}
	replace("") // by this one
	n.deletePods(pods[0])
	pods = pods[1:]
	run("after-0")
	replace(before)
	n.deletePods("after-0", pods[0])
	pods = pods[1 : len(pods)-1]
	replace("")
	n.deletePods(pods...)
	n.deleteClaims(claims...)
	n.verdict()
}

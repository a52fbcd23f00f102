package resolve_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// manyVolumes returns the manifest of a pod whose containers use n emptyDirs of more, v0 and on.
func manyVolumes(n, more int) string {
	var mounts, volumes []string
	for i := range n {
		mounts = append(mounts, fmt.Sprintf("{name: v%d, mountPath: /v%d}", i, i))
	}
	for i := range n + more {
		volumes = append(volumes, fmt.Sprintf("{name: v%d, emptyDir: {}}", i))
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec:\n  containers: [{name: c, "+
		"volumeMounts: [%s]}]\n  volumes: [%s]\n", strings.Join(mounts, ", "), strings.Join(volumes, ", "))
}

// A pod above the limit gets none of its volumes and is told pod, count, limit and setting; the volumes that it has
// already stay its own. What no container uses does not count, and without the setting nothing is refused.
func TestAPodAboveTheLimitIsRefused(t *testing.T) {
	const limit = 3
	for _, tc := range []struct {
		limit, uses, more int
		had               []string
		refused           int
	}{
		{limit: 0, uses: 500},
		{limit: limit, uses: 0, more: 9},
		{limit: limit, uses: limit, more: 9},
		{limit: limit, uses: limit + 1, refused: limit + 1},
		{limit: limit, uses: limit + 1, had: []string{"v1", "other"}, refused: limit},
		{limit: limit, uses: limit + 2, had: []string{"v0", "v1", "v2", "v3", "v4"}},
	} {
		w := parse(t, manyVolumes(tc.uses, tc.more))
		w.config.VolumesPerPod = tc.limit
		had := map[string]bool{}
		for _, name := range tc.had {
			had[name] = true
		}
		w.config.Had = func(pod state.Pod) map[string]bool {
			if pod.Name != "web" {
				t.Errorf("asked for pod %s", pod.Name)
			}
			return had
		}
		want := fmt.Sprintf("pod default/web: spec.volumes: found %d that its containers use, want at most %d, the limit of this "+
			"node (--volumes-per-pod=%d, or volumes-per-pod in the configuration file)", tc.uses, tc.limit, tc.limit)
		refused := 0
		for _, v := range w.resolve().Volumes {
			if v.Unresolved() {
				refused++
			}
			if v.Unresolved() && v.Problem != want || v.Unresolved() == (had[v.Names[0]] || tc.refused == 0) {
				t.Errorf("%+v: volume %s: %q", tc, v.Names[0], v.Problem)
			}
		}
		if refused != tc.refused {
			t.Errorf("%+v: %d volumes are refused", tc, refused)
		}
	}
}

package content_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/content"
)

func tokenSource(t *testing.T, text string) corev1.ProjectedVolumeSource {
	t.Helper()
	var src corev1.ProjectedVolumeSource
	if err := yaml.UnmarshalStrict([]byte(text), &src); err != nil {
		t.Fatal(err)
	}
	return src
}

// Items: L09.
func TestTokenIsAskedForAsTheSourceSays(t *testing.T) {
	w := newWorld(t)
	r := content.Reader{Namespace: "shop", Objects: w, Token: func(audience string, lifetime time.Duration) ([]byte, error) {
		return fmt.Appendf(nil, "%s for %v", audience, lifetime), nil
	}}
	files, err := r.Projected(tokenSource(t, `
defaultMode: 0444
sources:
- serviceAccountToken: {path: plain}
- serviceAccountToken: {path: d/vault, audience: vault, expirationSeconds: 600}
- secret: {name: cert}
`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"plain": " for 1h0m0s", "d/vault": "vault for 10m0s", "a": "secret a"} {
		if f := files[path]; string(f.Data) != want || f.Mode != 0o444 || f.Owner != nil {
			t.Errorf("%s: got %q, mode %o of %v", path, f.Data, f.Mode, f.Owner)
		}
	}
	for _, bad := range []string{"{path: t, expirationSeconds: 599}", "{path: t, expirationSeconds: 4294967296}", "{path: ../t}", "{path: ''}"} {
		if files, err := r.Projected(tokenSource(t, "sources: [{serviceAccountToken: "+bad+"}]")); err == nil {
			t.Errorf("%s: got %v", bad, files)
		}
	}
	failed := errors.New("no answer")
	r.Token = func(string, time.Duration) ([]byte, error) { return nil, failed }
	if _, err := r.Projected(tokenSource(t, "sources: [{serviceAccountToken: {path: t}}]")); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}

// Items: L09.
func TestTokenIsForTheUserOfThePod(t *testing.T) {
	for _, tc := range []struct {
		spec  string
		mode  uint32
		owner int64 // -1 for none
	}{
		{"containers: [{name: a}]", 0o644, -1},
		{"{securityContext: {runAsUser: 1000}, containers: [{name: a}, {name: b}]}", 0o600, 1000},
		{"{securityContext: {runAsUser: 1000}, containers: [{name: a}, {name: b, securityContext: {runAsUser: 7}}]}", 0o644, -1},
		{"containers: [{name: a, securityContext: {runAsUser: 7}}, {name: b, securityContext: {runAsUser: 7}}]", 0o600, 7},
		{"containers: [{name: a, securityContext: {runAsUser: 7}}, {name: b}]", 0o644, -1},
		{"{securityContext: {runAsUser: 0}, initContainers: [{name: i}], containers: [{name: a}]}", 0o600, 0},
		{"{securityContext: {fsGroup: 5}, containers: [{name: a}]}", 0o600, -1},
		{"{initContainers: [{name: i, securityContext: {runAsUser: 8}}], containers: [{name: a, securityContext: {runAsUser: 7}}]}", 0o644, -1},
	} {
		w := newWorld(t)
		w.pod.Spec = corev1.PodSpec{}
		if err := yaml.UnmarshalStrict([]byte(tc.spec), &w.pod.Spec); err != nil {
			t.Fatal(err)
		}
		r := content.Reader{Namespace: "shop", Objects: w, Token: func(string, time.Duration) ([]byte, error) { return []byte("t"), nil }}
		files, err := r.Projected(tokenSource(t, "sources: [{serviceAccountToken: {path: t}}]"))
		if err != nil {
			t.Errorf("%s: %v", tc.spec, err)
			continue
		}
		owner := int64(-1)
		if o := files["t"].Owner; o != nil {
			owner = *o
		}
		if files["t"].Mode != tc.mode || owner != tc.owner {
			t.Errorf("%s: mode %o of %d, want %o of %d", strings.TrimSpace(tc.spec), files["t"].Mode, owner, tc.mode, tc.owner)
		}
	}
}

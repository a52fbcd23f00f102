package resolve_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
)

// TestWhoMayHaveInlineVolumes: everybody where there are no rules, else whom a
// rule names; claims are not concerned.
//
// Items: F22.
// Attacks: C16.
func TestWhoMayHaveInlineVolumes(t *testing.T) {
	const driver = "csi.example.com"
	for name, tc := range map[string]struct {
		rules []resolve.InlineRule
		may   bool
	}{
		"no rules":              {may: true},
		"nobody":                {rules: []resolve.InlineRule{}},
		"its namespace":         {rules: []resolve.InlineRule{{Namespace: "other", Driver: driver}, {Namespace: "default", Driver: driver}}, may: true},
		"another namespace":     {rules: []resolve.InlineRule{{Namespace: "other", Driver: driver}}},
		"another driver":        {rules: []resolve.InlineRule{{Namespace: "default", Driver: "d"}}},
		"every namespace":       {rules: []resolve.InlineRule{{Namespace: resolve.Any, Driver: driver}}, may: true},
		"every driver, for its": {rules: []resolve.InlineRule{{Namespace: "default", Driver: resolve.Any}}, may: true},
	} {
		w := read(t, "testdata/base.yaml")
		w.config.InlineAllow = tc.rules
		w.driver(storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral, storagev1.VolumeLifecyclePersistent}})
		if got := w.only(t).Problem; got != "" {
			t.Errorf("%s: a claim: %s", name, got)
		}
		w.pod().Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driver}}
		got := w.only(t).Problem
		if want := "found csi.example.com, which namespace default may not use inline on this node; want a claim, or --inline-allow=default/csi.example.com"; tc.may != (got == "") || !tc.may && !strings.Contains(got, want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

const (
	podKey   = "csi.storage.k8s.io/pod.name"
	ownKey   = "csi.storage.k8s.io/ephemeral"
	tokenKey = "csi.storage.k8s.io/serviceAccount.tokens"
)

// What a driver learns about the pod and its service account depends on its CSIDriver
// object, or on its absence, at the time of the publish.
func TestScenariosOfWhatADriverIsTold(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-told")
	yes, no, minutes := true, false, int64(600)
	info := func(on *bool) func(*storagev1.CSIDriverSpec) {
		return func(s *storagev1.CSIDriverSpec) { s.PodInfoOnMount = on }
	}
	tokens := func(secrets *bool) func(*storagev1.CSIDriverSpec) {
		return func(s *storagev1.CSIDriverSpec) {
			s.TokenRequests, s.RequiresRepublish, s.ServiceAccountTokenInSecrets = []storagev1.TokenRequest{{ExpirationSeconds: &minutes}}, &yes, secrets
		}
	}
	type told struct{ pod, own, token, secret bool }
	for name, tc := range map[string]struct {
		object, then func(*storagev1.CSIDriverSpec)
		without      bool // without a CSIDriver object
		inline       bool
		want         told
	}{
		// Scenarios: U-10.
		"info": {object: info(&yes), want: told{pod: true}},
		// Scenarios: U-11.
		"info-inline": {object: func(s *storagev1.CSIDriverSpec) {
			s.PodInfoOnMount, s.VolumeLifecycleModes = &yes, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
		}, inline: true, want: told{pod: true, own: true}},
		// Scenarios: U-12, U-20.
		"info-no": {object: info(&no)},
		// Scenarios: U-13, U-21.
		"without": {without: true},
		// Scenarios: U-14.
		"info-off": {object: info(&yes), then: info(&no)},
		// Scenarios: U-15.
		"info-on": {object: info(&no), then: info(&yes), want: told{pod: true}},
		// Scenarios: U-22.
		"token": {object: tokens(nil), want: told{token: true}},
		// Scenarios: U-23.
		"token-secret": {object: tokens(&yes), want: told{secret: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := unattached("told-"+name+".test", tc.object)
			if tc.without { // without an object the volume is attached
				c = attached("told-" + name + ".test")
				c.object = nil
			}
			s := begin(t, n, c)
			volume := s.inline("data")
			if !tc.inline {
				s.static("told-"+name, nil)
				volume = fromClaim("told-" + name)
			}
			if tc.then != nil {
				s.up("told-"+name+"-before", volume)
				if got := s.told(); (got == told{pod: tc.want.pod}) {
					t.Errorf("before the change: %+v", got)
				}
				s.says(tc.then)
				s.down("told-" + name + "-before")
			}
			// The node sees a change after a while, and publishes later pods by it.
			for i := range 50 {
				pod := fmt.Sprintf("told-%s-%d", name, i)
				s.up(pod, volume)
				got := s.told()
				s.down(pod)
				if got == tc.want {
					return
				}
				if tc.then == nil {
					t.Fatalf("told %+v, want %+v", got, tc.want)
				}
			}
			t.Errorf("the change never showed: want %+v", tc.want)
		})
	}
}

// told returns what the last publish told the driver.
func (s *shared) told() (got struct{ pod, own, token, secret bool }) {
	s.t.Helper()
	events, err := csistrict.ReadTranscript(s.dir)
	must(s.t, err)
	for _, e := range events {
		if e.Event == csistrict.EventBegin && e.Call == "NodePublishVolume" {
			got.secret, got.token = slices.Contains(e.SecretKeys, tokenKey), e.Tokens
		}
	}
	context := s.publication().GetVolumeContext()
	_, got.pod = context[podKey]
	got.own = context[ownKey] == "true"
	return got
}

//go:build cluster

package cluster

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
)

// limit returns the driver's volume limit in the CSINode, or -1.
func (s *scene) limit() int32 {
	s.t.Helper()
	o, err := control.client.StorageV1().CSINodes().Get(s.t.Context(), s.n.name, metav1.GetOptions{})
	must(s.t, err)
	for _, d := range o.Spec.Drivers {
		if d.Name == s.name && d.Allocatable != nil && d.Allocatable.Count != nil {
			return *d.Allocatable.Count
		}
	}
	return -1
}

// placed waits until the scheduler has placed the pod. The scheduler (1.37.2) counts a
// VolumeAttachment until it is deleted, and then does not retry a pod with a generic
// ephemeral volume (nodevolumelimits, isSchedulableAfterVolumeAttachmentDeleted considers
// claims alone). Such a pod waits for five minutes unless another event triggers a retry.
// Here the event is the end of a pod with a claim.
func (s *scene) placed(pod string) {
	s.t.Helper()
	pods, ended := control.client.CoreV1().Pods("default"), pod+"-ended"
	s.n.eventually("pod "+pod+" is placed", func() bool {
		p, err := pods.Get(s.t.Context(), pod, metav1.GetOptions{})
		must(s.t, err)
		attachments, err := control.client.StorageV1().VolumeAttachments().List(s.t.Context(), metav1.ListOptions{})
		must(s.t, err)
		if p.Spec.NodeName != "" || slices.ContainsFunc(attachments.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.Attacher == s.name }) {
			return p.Spec.NodeName != ""
		}
		other := podWith("", ended, fromClaim("of-"+ended))
		other.Spec.NodeName = "elsewhere"
		createPod(s.t, other)
		deletePod(s.t, ended)
		return false
	})
}

// The scheduler keeps to the driver's limit in the CSINode: a pod with one volume too many
// waits until there is room, whatever the kinds of the two volumes.
func TestScenariosOfLimits(t *testing.T) {
	t.Parallel()
	n := asNode(t, "scene-limit")
	for name, tc := range map[string]struct{ first, second bool }{ // whether the volume is generic ephemeral
		// Scenarios: U-65, U-170, U-171.
		"claims": {},
		// Scenarios: U-66.
		"own-after-claim": {second: true},
		// Scenarios: U-67.
		"claim-after-own": {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := attached("limit-"+name+".test", "csi-provisioner")
			c.script.MaxVolumes = 1
			s := begin(t, n, c)
			if got := s.limit(); got != 1 {
				t.Errorf("the CSINode has limit %d, want 1", got)
			}
			volume := func(pod string, own bool) corev1.Volume {
				if own {
					return s.template("data")
				}
				s.claim(pod, "1Gi", nil)
				return fromClaim(pod)
			}
			first, second := "limit-"+name+"-1", "limit-"+name+"-2"
			s.up(first, volume(first, tc.first))
			createPod(t, podWith(n.name, second, volume(second, tc.second)))
			s.n.eventually("the second pod is not placed, for want of room", func() bool {
				p, err := control.client.CoreV1().Pods("default").Get(t.Context(), second, metav1.GetOptions{})
				must(t, err)
				for _, c := range p.Status.Conditions {
					if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "max volume count") {
						return true
					}
				}
				return false
			})
			deletePod(t, first)
			s.placed(second)
			s.n.mounted(second)
			s.down(second)
		})
	}
}

// The driver's limit changes while it runs. The CSINode has the new limit after the period
// that the CSIDriver object asks for.
//
// Scenarios: U-71.
func TestScenarioOfALimitThatChanges(t *testing.T) {
	t.Parallel()
	n, seconds, yes := asNode(t, "scene-limits"), int64(10), true
	c := unattached("limit-changes.test", func(o *storagev1.CSIDriverSpec) {
		o.NodeAllocatableUpdatePeriodSeconds, o.PodInfoOnMount = &seconds, &yes
		o.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	})
	c.script.MaxVolumes = 3
	s := begin(t, n, c)
	s.up("limit-changes", s.inline("data"))
	if got := s.limit(); got != 3 {
		t.Errorf("limit %d, want 3", got)
	}
	c.script.MaxVolumes = 7
	must(t, csistrict.WriteScript(s.dir, c.script))
	n.eventually("the CSINode has the new limit", func() bool { return s.limit() == 7 })
	s.down("limit-changes")
}

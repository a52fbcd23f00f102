package drivertest

import (
	"encoding/json"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/kinds/poddir"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Subject is a kind under test.
type Subject struct {
	Driver poddir.Verbs
	Kind   state.DriverName
	// Config is the source of the volumes to make.
	Config json.RawMessage
	// HostPath is the path that the volumes give to containers, if it is not their
	// target.
	HostPath string
	// Grows is true if the kind supports Expand.
	Grows bool
	// Fixed is true if the volumes are not writable and contain a directory named dir.
	Fixed bool
	// Change makes the next Publish deliver other content; nil for a kind without
	// content.
	Change func()
	// Fail makes every Publish fail from now on, or no longer; nil for a kind that
	// depends on nothing that could fail.
	Fail func(fail bool)
}

// Factory returns a new Driver of the kind for a node's root, which may contain what an
// earlier driver made, as after a restart.
type Factory func(t *testing.T, layout state.Layout) Subject

// Run tests the kind that factory makes. The test's TestMain must call [Main].
func Run(t *testing.T, factory Factory) {
	for name, check := range map[string]func(*node){
		"PublishMakesTheTarget":           publishMakesTheTarget,
		"PublishTwiceIsPublishOnce":       publishTwiceIsPublishOnce,
		"PublishAfterRestartKeepsData":    publishAfterRestartKeepsData,
		"RemovalNeedsTheRecordAlone":      removalNeedsTheRecordAlone,
		"UnpublishRemovesAll":             unpublishRemovesAll,
		"UnpublishOfNothingIsDone":        unpublishOfNothingIsDone,
		"UnpublishLeavesOthersAlone":      unpublishLeavesOthersAlone,
		"UnpublishCrossesNoMount":         unpublishCrossesNoMount,
		"UnpublishFollowsNoLink":          unpublishFollowsNoLink,
		"EndedContextChangesNothing":      endedContextChangesNothing,
		"NamesThatLeadElsewhereRefused":   namesThatLeadElsewhereRefused,
		"TargetOfAnotherRefused":          targetOfAnotherRefused,
		"LinkAboveTheVolumeNotFollowed":   linkAboveTheVolumeNotFollowed,
		"RecordWithoutMountRefused":       recordWithoutMountRefused,
		"BadSourceRefusedAndContentStays": badSourceRefusedAndContentStays,
		"StepsItLacksAreFinal":            stepsItLacksAreFinal,
		"RenewalBringsNewContent":         renewalBringsNewContent,
		"FailedRenewalKeepsContent":       failedRenewalKeepsContent,
		"VolumesSideBySide":               volumesSideBySide,
	} {
		t.Run(name, func(t *testing.T) { check(newNode(t, factory)) })
	}
}

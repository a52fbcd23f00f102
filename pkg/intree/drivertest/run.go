package drivertest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Driver is manager.Driver, which a built-in kind has without knowing it.
type Driver interface {
	Stage(ctx context.Context, v state.Volume) error
	Publish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unpublish(ctx context.Context, v state.Volume, pod state.PodUID) error
	Unstage(ctx context.Context, v state.Volume) error
	Expand(ctx context.Context, v state.Volume, pod state.PodUID, bytes int64) (int64, error)
}

// Subject is a kind under test.
type Subject struct {
	Driver Driver
	Kind   state.DriverName
	// Config is the source of the volumes to be made.
	Config json.RawMessage
	// HostPath is what the volumes hand out, where that is not their target.
	HostPath string
	// Grows: the volumes have Expand.
	Grows bool
	// Fixed: nothing can be written into the volumes, which have a directory
	// named dir.
	Fixed bool
	// Change makes the next Publish bring other content. nil for a kind that
	// brings none.
	Change func()
	// Fail makes every Publish fail from now on, or no longer. nil for a kind
	// that needs nothing that can.
	Fail func(fail bool)
}

// Factory returns a new Driver of the kind on a node's root, which may hold
// what an earlier one made there, as after a restart.
type Factory func(t *testing.T, layout state.Layout) Subject

// Run checks the kind that factory makes. To be run under [Main].
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

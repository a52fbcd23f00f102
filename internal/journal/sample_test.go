package journal

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sample is a record with every field set.
func sample(id state.VolumeID) state.Volume {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	group := int64(2000)
	retry := state.Retry{Attempts: 3, Since: at, NotBefore: at.Add(time.Minute), Final: true, Call: "NodePublishVolume", Code: "Unavailable", Error: "it is <down> & out", Step: state.UnmountForce, First: "Internal: no"}
	ref := state.SecretRef{Namespace: "ns", Name: "key"}
	return state.Volume{
		ID: id,
		Spec: &state.Spec{
			Driver: "csi.example", Handle: "vol-1", Name: "pv-1", Claim: "ns/data", Ephemeral: true, Builtin: true, NoAttach: true, Migrated: true, MountGroup: "2000", SELinuxLabel: "u:r:t:s0:c1",
			Mode: state.Filesystem, FSType: "xfs", MountFlags: []string{"noatime"}, AccessModes: []state.AccessMode{state.ReadWriteOnce},
			Context: map[string]string{"a": "b"}, Config: json.RawMessage(`{"medium":"<Memory>"}`),
			PublishContext: map[string]string{"dev": "/dev/x"}, Attachment: "uid-1", StagePath: "/r/globalmount",
			AttachRef: ref, StageRef: ref, PublishRef: ref, ExpandRef: ref,
		},
		Needs: state.Needs{Attach: true, Stage: true}, For: []state.PodUID{"p1"},
		Attach: state.Fact{Phase: state.Present, Failed: &retry}, PublishContext: map[string]string{"lun": "7"},
		Stage: state.Fact{Phase: state.Present}, Staged: state.Seen{Exists: true, Mounted: true, MountID: 1 << 40, Dev: 7 << 32, Layers: 1, ReadOnly: true},
		SizeBytes: 1 << 30, ExpandFailed: &retry, Former: map[state.PodUID]string{"p0": "/r/pods/p0/x"},
		Mounts: map[state.PodUID]state.Mount{
			"p1": {
				Fact: state.Fact{Phase: state.Leaving, Failed: &retry},
				MountSpec: state.MountSpec{
					Pod: state.Pod{UID: "p1", Namespace: "ns", Name: "web", ServiceAccount: "sa"}, Names: []string{"data", "more"},
					Target: "/r/pods/p1/x", DevicePath: "/r/dev", HostPath: "/srv", ReadOnly: true, Ownership: state.OwnAlways, SELinuxLabel: "u:r:t:s0:c1", FSGroup: &group, Context: map[string]string{"k": "v"},
					Renewal: state.Renewal{Tokens: []state.TokenRequest{{Audience: "vault", Lifetime: time.Hour}}, InSecrets: true, Republish: true},
				},
				RenewAt: at, Waits: true, Revision: "r7", Seen: state.Seen{Exists: true, BlockDevice: true},
			},
			"p2": {Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{Pod: state.Pod{UID: "p2"}, Names: []string{"data"}, Target: "/r/pods/p2/x"}},
		},
	}
}

func sampleID(i int) state.VolumeID { return state.VolumeID(fmt.Sprintf("csi.example^vol-%d", i)) }

func diff(want, got any) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

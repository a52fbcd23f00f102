package state

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sample is a record with every field set.
func sample(id VolumeID) Volume {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	group := int64(2000)
	retry := Retry{Attempts: 3, Since: at, NotBefore: at.Add(time.Minute), Final: true, Call: "NodePublishVolume", Code: "Unavailable", Error: "it is <down> & out", Step: UnmountForce, First: "Internal: no"}
	ref := SecretRef{Namespace: "ns", Name: "key"}
	return Volume{
		ID: id,
		Spec: &Spec{
			Driver: "csi.example", Handle: "vol-1", Name: "pv-1", Claim: "ns/data", Ephemeral: true, Builtin: true, NoAttach: true, Migrated: true, MountGroup: "2000", SELinuxLabel: "u:r:t:s0:c1",
			Mode: Filesystem, FSType: "xfs", MountFlags: []string{"noatime"}, AccessModes: []AccessMode{ReadWriteOnce},
			Context: map[string]string{"a": "b"}, Config: json.RawMessage(`{"medium":"<Memory>"}`),
			PublishContext: map[string]string{"dev": "/dev/x"}, Attachment: "uid-1", StagePath: "/r/globalmount",
			AttachRef: ref, StageRef: ref, PublishRef: ref, ExpandRef: ref,
		},
		Needs: Needs{Attach: true, Stage: true}, For: []PodUID{"p1"},
		Attach: Fact{Phase: Present, Failed: &retry}, PublishContext: map[string]string{"lun": "7"},
		Stage: Fact{Phase: Present}, Staged: Seen{Exists: true, Mounted: true, MountID: 1 << 40, Dev: 7 << 32, Layers: 1, ReadOnly: true},
		SizeBytes: 1 << 30, ExpandFailed: &retry,
		Mounts: map[PodUID]Mount{
			"p1": {
				Fact: Fact{Phase: Leaving, Failed: &retry},
				MountSpec: MountSpec{
					Pod: Pod{UID: "p1", Namespace: "ns", Name: "web", ServiceAccount: "sa"}, Names: []string{"data", "more"},
					Target: "/r/pods/p1/x", DevicePath: "/r/dev", HostPath: "/srv", ReadOnly: true, Ownership: OwnAlways, SELinuxLabel: "u:r:t:s0:c1", FSGroup: &group, Context: map[string]string{"k": "v"},
					Renewal: Renewal{Tokens: []TokenRequest{{Audience: "vault", Lifetime: time.Hour}}, InSecrets: true, Republish: true},
				},
				RenewAt: at, Waits: true, Revision: "r7", Seen: Seen{Exists: true, BlockDevice: true},
			},
			"p2": {Fact: Fact{Phase: Present}, MountSpec: MountSpec{Pod: Pod{UID: "p2"}, Names: []string{"data"}, Target: "/r/pods/p2/x"}},
		},
	}
}

func sampleID(i int) VolumeID { return VolumeID(fmt.Sprintf("csi.example^vol-%d", i)) }

func diff(want, got any) string { return cmp.Diff(want, got, cmpopts.EquateEmpty()) }

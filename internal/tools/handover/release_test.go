package handover

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// managed returns a node with one record of each form that a kubelet knows.
func managed() Managed {
	is := state.Fact{Phase: state.Present}
	use := func(target, name string, seen state.Seen) map[state.PodUID]state.Mount {
		return map[state.PodUID]state.Mount{uid: {Fact: is, Seen: seen, MountSpec: state.MountSpec{Pod: state.Pod{UID: uid}, Names: []string{name}, Target: target}}}
	}
	l := layout()
	m := Managed{Layout: l, NodeName: "node-1", Journal: map[state.VolumeID]state.Volume{}}
	for _, v := range []state.Volume{
		{
			ID: state.SharedID(driver, "vol-1"), Needs: state.Needs{Stage: true}, Stage: is, Staged: mounted(1),
			Spec:   &state.Spec{Driver: driver, Handle: "vol-1", Name: "pv-1", Mode: state.Filesystem, StagePath: stagePath("vol-1"), SELinuxLabel: "u:r:t:s0"},
			Mounts: use(l.Target(state.Filesystem, uid, "pv-1"), "data", mounted(2)),
		},
		{
			ID: state.SharedID(driver, "vol-2"), Needs: state.Needs{Stage: true}, Stage: is,
			Spec:   &state.Spec{Driver: driver, Handle: "vol-2", Name: "pv-2", Mode: state.Block, StagePath: l.StagePath(state.Block, driver, "vol-2", "pv-2")},
			Mounts: use(l.Target(state.Block, uid, "pv-2"), "disk", state.Seen{Exists: true, BlockDevice: true}),
		},
		{
			ID:     state.PodVolumeID(driver, uid, "cache"),
			Spec:   &state.Spec{Driver: driver, Handle: state.EphemeralHandle(uid, "cache"), Name: "cache", Ephemeral: true, Mode: state.Filesystem},
			Mounts: use(l.Target(state.Filesystem, uid, "cache"), "cache", mounted(3)),
		},
	} {
		m.Journal[v.ID] = v
	}
	for name, seen := range map[state.DriverName]state.Seen{
		kind.EmptyDir: {Exists: true}, kind.HostPath: {Exists: true}, kind.Secret: mounted(4),
		kind.ConfigMap: {Exists: true}, kind.NFS: mounted(5), kind.Local: mounted(6),
	} {
		id := state.PodVolumeID(name, uid, "x")
		m.Journal[id] = state.Volume{
			ID: id, Spec: &state.Spec{Driver: name, Builtin: true, Name: "x", Mode: state.Filesystem, Config: json.RawMessage(`{"path":"/srv"}`)},
			Mounts: use(l.BuiltinTarget(name, uid, "x"), "x", seen),
		}
	}
	return m
}

// The expected files are written by hand from the kubelet's formats.
func TestReleasedVolumesHaveAKubeletsFiles(t *testing.T) {
	const (
		pod = root + "/pods/0e9bd0a5-5a0e-4f7c-a7ad-3a1b1a0c8f11"
		csi = root + "/plugins/kubernetes.io/csi"
	)
	want := map[string]string{
		csi + "/csi.example.com/d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49/vol_data.json": `{"driverName":"csi.example.com","seLinuxMountContext":"u:r:t:s0","volumeHandle":"vol-1"}`,
		pod + "/volumes/kubernetes.io~csi/pv-1/vol_data.json":                                                   `{"attachmentID":"csi-b74c7fc125891ffa0d0f2e0d645733e3fae7fba3066e76500a771ea08be9da28","driverName":"csi.example.com","nodeName":"node-1","seLinuxMountContext":"u:r:t:s0","specVolID":"pv-1","volumeHandle":"vol-1","volumeLifecycleMode":"Persistent"}`,
		pod + "/volumes/kubernetes.io~csi/cache/vol_data.json":                                                  `{"attachmentID":"csi-852b71dc6d5ff00070121384e5f9fa61007fb838f31903f1f7edd14580db46ad","driverName":"csi.example.com","nodeName":"node-1","specVolID":"cache","volumeHandle":"csi-bc565f0bd4c600dd0dac66b35086ad6152e02c8e9714c4d647102618a8d8680a","volumeLifecycleMode":"Ephemeral"}`,
		csi + "/volumeDevices/pv-2/data/vol_data.json":                                                          `{"attachmentID":"csi-21fc1c9138253736ef97ea1338db9d695687812791e0499f8b23e18756cdc8ce","driverName":"csi.example.com","nodeName":"node-1","specVolID":"pv-2","volumeHandle":"vol-2"}`,
		pod + "/plugins/kubernetes.io~empty-dir/wrapped_x/ready":                                                "null",
	}
	back := Release(managed())
	if why := Against(back.Refusals, ""); why != "" || len(back.Records) != 9 {
		t.Fatalf("refused %q, records %v", why, back.Records)
	}
	got := map[string]string{}
	for _, f := range back.Files {
		b, err := json.Marshal(f.Values)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Path] = string(b)
	}
	if !maps.Equal(got, want) {
		for path := range want {
			t.Errorf("%s:\n got %s\nwant %s", path, got[path], want[path])
		}
		t.Errorf("files %q", slices.Sorted(maps.Keys(got)))
	}
	if !slices.Equal(back.Empty, []string{pod + "/volumes/kubernetes.io~host-path/x"}) {
		t.Errorf("empty %q", back.Empty)
	}
}

// A device that a driver was staging when the daemon ended may be staged: the directory
// tells a kubelet so, and adopt, which unstages it.
func TestADeviceThatMayBeStagedIsFoundAgain(t *testing.T) {
	l := state.Layout{Root: root}
	v := state.Volume{
		ID: state.SharedID(driver, "vol-2"), Needs: state.Needs{Stage: true}, Stage: state.Fact{Phase: state.Entering},
		Spec: &state.Spec{Driver: driver, Handle: "vol-2", Name: "pv-2", Mode: state.Block, StagePath: l.StagePath(state.Block, driver, "vol-2", "pv-2")},
	}
	back := Release(Managed{Layout: l, NodeName: "node-1", Journal: map[state.VolumeID]state.Volume{v.ID: v}})
	if len(back.Files) != 1 || back.Files[0].Dir != v.Spec.StagePath {
		t.Fatalf("files %+v, want one beside %s", back.Files, v.Spec.StagePath)
	}
	d := Disk{Blocks: []Block{{Name: "pv-2", Stage: state.Seen{Exists: true}, Notes: Notes{Found: true, Values: back.Files[0].Values}}}}
	if got := adopt(t, input(d)).Records[v.ID]; got.Stage.Phase != state.Entering {
		t.Errorf("got %+v", got)
	}
}

// Adopt can take over again what release handed back, even if no pod wants it.
func TestReleasedVolumesCanBeTakenOver(t *testing.T) {
	m := managed()
	delete(m.Journal, state.PodVolumeID(kind.HostPath, uid, "x"))
	files := map[string]Notes{}
	for _, f := range Release(m).Files {
		files[f.Path] = Notes{Found: true, Values: f.Values}
	}
	var d Disk
	for _, v := range m.Journal {
		use := v.Mounts[uid]
		switch {
		case v.Spec.Mode == state.Block:
			d.Blocks = append(d.Blocks, Block{Name: v.Spec.Name, Stage: state.Seen{Exists: true}, Published: map[state.PodUID]state.Seen{uid: use.Seen}, Notes: files[blockDir(m.Layout)+"/"+v.Spec.Name+"/data/vol_data.json"]})
			continue
		case v.Spec.Builtin:
			d.Volumes = append(d.Volumes, builtinVolume(strings.ReplaceAll(string(v.Spec.Driver), "/", "~"), v.Spec.Name, use.Seen))
			continue
		case v.Spec.StagePath != "":
			d.Staged = append(d.Staged, Staged{Path: v.Spec.StagePath, Seen: v.Staged, Notes: files[strings.TrimSuffix(v.Spec.StagePath, "globalmount")+"vol_data.json"]})
		}
		d.Volumes = append(d.Volumes, Volume{Pod: uid, Plugin: "kubernetes.io~csi", Name: v.Spec.Name, Seen: use.Seen, Notes: files[strings.TrimSuffix(use.Target, "mount")+"vol_data.json"]})
	}
	got := adopt(t, input(d)).Records
	for id, v := range m.Journal {
		if v.Spec.Driver == kind.Local {
			id = state.SharedID(kind.Local, "x")
		}
		g, ok := got[id]
		if !ok || g.Spec.Driver != v.Spec.Driver || g.Spec.Handle != v.Spec.Handle || g.Spec.Name != v.Spec.Name || g.Spec.StagePath != v.Spec.StagePath ||
			g.Spec.Ephemeral != v.Spec.Ephemeral || g.Spec.SELinuxLabel != v.Spec.SELinuxLabel || g.Needs != v.Needs || g.Stage.Phase != v.Stage.Phase ||
			g.Mounts[uid].Phase != state.Present || g.Mounts[uid].Target != v.Mounts[uid].Target {
			t.Errorf("%s: got %+v, want %+v", id, g, v)
		}
	}
	if len(got) != len(m.Journal) {
		t.Errorf("%d records, want %d", len(got), len(m.Journal))
	}
}

func TestReleaseRefuses(t *testing.T) {
	id := state.SharedID(driver, "vol-1")
	for _, tt := range []struct {
		name, want string
		change     func(m *Managed, v *state.Volume)
	}{
		{"what csi-volmgr attached", "a kubelet would not detach it", func(_ *Managed, v *state.Volume) { v.Attach.Phase = state.Present }},
		{"a stage that is being removed", "being removed", func(_ *Managed, v *state.Volume) { v.Stage.Phase = state.Leaving }},
		{"a mount that is being removed", "being removed", func(_ *Managed, v *state.Volume) {
			v.Mounts = map[state.PodUID]state.Mount{uid: {Fact: state.Fact{Phase: state.Leaving}}}
		}},
		{"a device that may be published", "may already be published to pod", func(_ *Managed, v *state.Volume) {
			v.Spec = &state.Spec{Driver: driver, Mode: state.Block, StagePath: "/x"}
			v.Mounts = map[state.PodUID]state.Mount{uid: {Fact: state.Fact{Phase: state.Entering}}}
		}},
		{"a kind that is kept otherwise", "in another form", func(_ *Managed, v *state.Volume) {
			v.Spec = &state.Spec{Driver: "kubernetes.io/iscsi", Builtin: true, StagePath: "/x"}
		}},
		{"a local volume on a device", "of the device /dev/sdx", func(m *Managed, v *state.Volume) {
			v.Spec = &state.Spec{Driver: kind.Local, Builtin: true, Name: "pv", Mode: state.Filesystem, Config: json.RawMessage(`{"path":"/dev/sdx"}`)}
			m.Devices = map[string]bool{"/dev/sdx": true}
		}},
		{"a raw local volume", "raw block volumes of this kind", func(_ *Managed, v *state.Volume) {
			v.Spec = &state.Spec{Driver: kind.Local, Builtin: true, Mode: state.Block, Config: json.RawMessage(`{"path":"/dev/sdx"}`)}
		}},
		{"a local volume of an unknown source", "its source cannot be read", func(_ *Managed, v *state.Volume) {
			v.Spec = &state.Spec{Driver: kind.Local, Builtin: true}
		}},
		{"parts under another name", "a kubelet looks for them under the name pv-1", func(m *Managed, _ *state.Volume) {
			m.Mounts = []string{root + "/pods/" + string(uid) + "/volume-subpaths/data/main/0"}
		}},
	} {
		m := managed()
		v := m.Journal[id]
		tt.change(&m, &v)
		m.Journal[id] = v
		back := Release(m)
		if why := Against(back.Refusals, "a reason"); !strings.Contains(why, tt.want) || len(back.Records) != 8 {
			t.Errorf("%s: refused by %q, want %q in it; %d records", tt.name, why, tt.want, len(back.Records))
		}
	}
}

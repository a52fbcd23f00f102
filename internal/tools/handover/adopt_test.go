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

const (
	root   = "/kubelet"
	uid    = state.PodUID("0e9bd0a5-5a0e-4f7c-a7ad-3a1b1a0c8f11")
	driver = "csi.example.com"
	// staged is a stage whose hash is that of a handle which no volume here has.
	staged = root + "/plugins/kubernetes.io/csi/csi.example.com/b1f9fbe8d8ac4d8c2fe8f9d0c7b7be5b/globalmount"
)

func layout() state.Layout { return state.Layout{Root: root} }

// notes parses a vol_data.json.
func notes(text string) Notes {
	n := Notes{Found: true}
	if err := json.Unmarshal([]byte(text), &n.Values); err != nil {
		n.Values, n.Problem = nil, err.Error()
	}
	return n
}

const (
	podNotes    = `{"attachmentID":"csi-1","driverName":"csi.example.com","nodeName":"n","specVolID":"pv-1","volumeHandle":"vol-1","volumeLifecycleMode":"Persistent"}`
	globalNotes = `{"driverName":"csi.example.com","volumeHandle":"vol-1"}`
	blockNotes  = `{"attachmentID":"csi-1","driverName":"csi.example.com","nodeName":"n","specVolID":"pv-1","volumeHandle":"vol-1"}`
)

func mounted(id uint64) state.Seen {
	return state.Seen{Exists: true, Mounted: true, MountID: id, Dev: 7, Layers: 1}
}

func csiVolume(name, text string, seen state.Seen) Volume {
	return Volume{Pod: uid, Plugin: "kubernetes.io~csi", Name: name, Path: root + "/pods/" + string(uid) + "/volumes/kubernetes.io~csi/" + name, Notes: notes(text), Seen: seen}
}

func builtinVolume(plugin, name string, seen state.Seen) Volume {
	return Volume{Pod: uid, Plugin: plugin, Name: name, Path: root + "/pods/" + string(uid) + "/volumes/" + plugin + "/" + name, Seen: seen}
}

func stagePath(handle string) string {
	return layout().StagePath(state.Filesystem, driver, handle, "")
}

// input is a node with one volume of one pod, which is listed.
func input(disk Disk, wants ...state.VolumeWant) Input {
	return Input{
		Layout: layout(), Disk: disk, Drivers: map[state.DriverName]Abilities{driver: {Stage: true}},
		Pods: map[state.PodUID]state.PodWant{uid: {Pod: state.Pod{UID: uid, Namespace: "default", Name: "web"}, Volumes: wants}},
	}
}

func oneVolume() Disk {
	return Disk{
		Volumes: []Volume{csiVolume("pv-1", podNotes, mounted(2))},
		Staged:  []Staged{{Path: stagePath("vol-1"), Notes: notes(globalNotes), Seen: mounted(1)}},
		Mounts:  []string{stagePath("vol-1"), layout().Target(state.Filesystem, uid, "pv-1"), root + "/pods/" + string(uid) + "/volume-subpaths/pv-1/main/0"},
	}
}

func wantVolume() state.VolumeWant {
	group := int64(2000)
	return state.VolumeWant{
		Names: []string{"data"}, ID: state.SharedID(driver, "vol-1"), SizeBytes: 20, HaveBytes: 10,
		Spec: state.Spec{
			Driver: driver, Handle: "vol-1", Name: "pv-1", Mode: state.Filesystem, FSType: "xfs", AccessModes: []state.AccessMode{state.ReadWriteOnce},
			Context: map[string]string{"a": "b"}, StagePath: stagePath("vol-1"), StageRef: state.SecretRef{Namespace: "x", Name: "y"},
		},
		Mount: state.MountSpec{Pod: state.Pod{UID: uid, Namespace: "default", Name: "web"}, Target: layout().Target(state.Filesystem, uid, "pv-1"), FSGroup: &group},
	}
}

func adopt(t *testing.T, in Input) Takeover {
	t.Helper()
	got := Adopt(in)
	if why := Against(got.Refusals, ""); why != "" {
		t.Fatalf("refused: %s", why)
	}
	return got
}

func TestAWantedVolumeHasTheRecordThatCallsOfItsOwnWouldHaveLeft(t *testing.T) {
	w := wantVolume()
	v, ok := adopt(t, input(oneVolume(), w)).Records[w.ID]
	m := v.Mounts[uid]
	switch {
	case !ok || !v.Spec.Equal(&w.Spec) || !m.MountSpec.Equal(w.Mount) || !slices.Equal(m.Names, w.Names):
		t.Errorf("record %+v, want what is wished: %+v", v, w)
	case v.Stage.Phase != state.Present || v.Staged.MountID != 1 || m.Phase != state.Present || m.Seen.MountID != 2 || !v.Needs.Stage || v.Needs.Attach:
		t.Errorf("facts %+v", v)
	case v.SizeBytes != 10 || !slices.Equal(v.For, []state.PodUID{uid}):
		t.Errorf("size %d, for %v", v.SizeBytes, v.For)
	}
}

func TestAVolumeThatNobodyWantsHasARecordThatIsEnoughToRemoveIt(t *testing.T) {
	in := input(oneVolume())
	v := adopt(t, in).Records[state.SharedID(driver, "vol-1")]
	if m := v.Mounts[uid]; v.Spec.Handle != "vol-1" || v.Spec.StagePath != stagePath("vol-1") || v.Spec.Name != "pv-1" ||
		m.Target != in.Disk.Mounts[1] || m.Pod.Name != "web" || v.Stage.Phase != state.Present || m.Phase != state.Present {
		t.Errorf("record %+v", v)
	}
}

// The pod that has the volume has ended and is not listed, and its uid sorts first.
func TestAVolumeOfAnEndedPodIsWhatAnotherPodWants(t *testing.T) {
	const other = state.PodUID("ffff")
	in, w := input(oneVolume()), wantVolume()
	w.Spec.AccessModes = []state.AccessMode{state.ReadWriteOncePod}
	w.Mount.Target = layout().Target(state.Filesystem, other, "pv-1")
	in.Pods = map[state.PodUID]state.PodWant{other: {Pod: state.Pod{UID: other}, Volumes: []state.VolumeWant{w}}}
	if v := Adopt(in).Records[w.ID]; !v.Spec.Equal(&w.Spec) || len(v.Mounts) != 1 || v.Mounts[uid].Phase != state.Present {
		t.Errorf("record %+v", v)
	}
	w.Spec.Mode = state.Block
	in.Pods[other].Volumes[0] = w
	in.Disk = Disk{Blocks: []Block{{Name: "pv-1", Notes: notes(blockNotes), Published: map[state.PodUID]state.Seen{uid: {Exists: true, BlockDevice: true}}}}}
	if v := Adopt(in).Records[w.ID]; !v.Spec.Exclusive() || v.Mounts[uid].Phase != state.Present {
		t.Errorf("block: record %+v", v)
	}
}

// Otherwise the record would not say where the volume is, and no pod could get it any more.
func TestALocalVolumeOfAnEndedPodIsWhatAnotherPodWants(t *testing.T) {
	const other = state.PodUID("ffff")
	w := state.VolumeWant{
		ID: state.SharedID(kind.Local, "pv-2"), Names: []string{"x"}, Mount: state.MountSpec{Target: layout().BuiltinTarget(kind.Local, other, "pv-2")},
		Spec: state.Spec{Driver: kind.Local, Builtin: true, Name: "pv-2", Mode: state.Filesystem, Config: json.RawMessage(`{"path":"/data"}`)},
	}
	in := input(Disk{Volumes: []Volume{builtinVolume("kubernetes.io~local-volume", "pv-2", mounted(3))}})
	in.Pods = map[state.PodUID]state.PodWant{other: {Pod: state.Pod{UID: other}, Volumes: []state.VolumeWant{w}}}
	if v := Adopt(in).Records[w.ID]; !v.Spec.Equal(&w.Spec) || v.Mounts[uid].Phase != state.Present {
		t.Errorf("record %+v", v)
	}
}

func TestASecondTimeThereIsNothingToDo(t *testing.T) {
	in := input(Disk{
		Volumes: append(oneVolume().Volumes, builtinVolume("kubernetes.io~empty-dir", "x", state.Seen{Exists: true})),
		Staged:  oneVolume().Staged, Mounts: oneVolume().Mounts,
		Blocks: []Block{{Name: "pv-2", Notes: notes(`{"driverName":"csi.example.com","volumeHandle":"vol-2","specVolID":"pv-2"}`), Stage: state.Seen{Exists: true}, Published: map[state.PodUID]state.Seen{uid: {Exists: true, BlockDevice: true}}}},
	})
	first := adopt(t, in)
	if len(first.Records) != 3 {
		t.Fatalf("records %v", first.Records)
	}
	in.Journal = first.Records
	if again := adopt(t, in); len(again.Records) != 0 || len(again.Items) != 0 {
		t.Errorf("again: %+v", again)
	}
	// If a kubelet gave the volume to another pod meanwhile, that pod joins the record.
	const other = state.PodUID("other")
	more := csiVolume("pv-1", podNotes, mounted(9))
	more.Pod = other
	in.Pods[other] = state.PodWant{Pod: state.Pod{UID: other}}
	in.Disk.Volumes = append(in.Disk.Volumes, more)
	v := adopt(t, in).Records[state.SharedID(driver, "vol-1")]
	if len(v.Mounts) != 2 || v.Mounts[uid].Seen.MountID != 2 || v.Mounts[other].Seen.MountID != 9 || v.Staged.MountID != 1 {
		t.Errorf("record %+v", v)
	}
}

func TestWhatTheKernelDoesNotShowIsNotTakenForDone(t *testing.T) {
	id := state.SharedID(driver, "vol-1")
	for _, tt := range []struct {
		name        string
		stage, pod  state.Seen
		want, wantM state.Phase
	}{
		{"both", mounted(1), mounted(2), state.Present, state.Present},
		{"published over a stage without a mount", state.Seen{Exists: true}, mounted(2), state.Entering, state.Present},
		{"publish was begun", mounted(1), state.Seen{}, state.Present, state.Entering},
		{"publish was begun, with a directory", mounted(1), state.Seen{Exists: true}, state.Present, state.Entering},
		{"stage was begun", state.Seen{Exists: true}, state.Seen{}, state.Entering, state.Entering},
	} {
		d := oneVolume()
		d.Staged[0].Seen, d.Volumes[0].Seen = tt.stage, tt.pod
		v := adopt(t, input(d, wantVolume())).Records[id]
		if v.Stage.Phase != tt.want || v.Mounts[uid].Phase != tt.wantM {
			t.Errorf("%s: stage %v, mount %v", tt.name, v.Stage.Phase, v.Mounts[uid].Phase)
		}
	}
}

// Faults: A062.
func TestBothStagingLayoutsAreKnown(t *testing.T) {
	before := root + "/plugins/kubernetes.io/csi/pv/pv-1/globalmount"
	d := oneVolume()
	d.Staged = []Staged{{Path: stagePath("vol-1"), Seen: state.Seen{Exists: true}}, {Path: before, Notes: notes(globalNotes), Seen: mounted(1)}}
	d.Mounts[0] = before
	got := adopt(t, input(d, wantVolume()))
	if v := got.Records[state.SharedID(driver, "vol-1")]; v.Spec.StagePath != before || v.Stage.Phase != state.Present {
		t.Errorf("record %+v", v)
	}
}

func TestADriverThatStagesNothing(t *testing.T) {
	d := oneVolume()
	d.Staged[0].Seen = state.Seen{Exists: true}
	in := input(d, wantVolume())
	in.Drivers[driver] = Abilities{MountGroup: true}
	got := adopt(t, in)
	v := got.Records[state.SharedID(driver, "vol-1")]
	if v.Needs.Stage || v.Stage.Phase != state.Absent || !slices.Equal(got.Empty, []string{stagePath("vol-1")}) || v.Spec.MountGroup != "2000" {
		t.Errorf("record %+v, empty %q", v, got.Empty)
	}
	// If a run died before it removed the directory, the next run removes it.
	for _, can := range []map[state.DriverName]Abilities{in.Drivers, nil} {
		again := in
		again.Journal, again.Drivers = got.Records, can
		if got := adopt(t, again); len(got.Records) != 0 || !slices.Equal(got.Empty, []string{stagePath("vol-1")}) {
			t.Errorf("again: records %v, empty %q", got.Records, got.Empty)
		}
	}
	in.Disk.Staged, in.Disk.Mounts = nil, in.Disk.Mounts[1:]
	if got := adopt(t, in); len(got.Empty) != 0 {
		t.Errorf("empty %q", got.Empty)
	}
}

func TestInlineAndBlockVolumes(t *testing.T) {
	handle := state.EphemeralHandle(uid, "cache")
	target := layout().Target(state.Block, uid, "pv-1")
	got := adopt(t, input(Disk{
		Volumes: []Volume{csiVolume("cache", `{"driverName":"csi.example.com","specVolID":"cache","volumeHandle":"`+handle+`","volumeLifecycleMode":"Ephemeral","seLinuxMountContext":"system_u:object_r:container_file_t:s0:c1"}`, mounted(1))},
		Blocks:  []Block{{Name: "pv-1", Notes: notes(blockNotes), Stage: state.Seen{Exists: true}, Published: map[state.PodUID]state.Seen{uid: {Exists: true, Mounted: true, BlockDevice: true, Dev: 3}}}},
		Devices: []Device{{Pod: uid, Plugin: "kubernetes.io~csi", Name: "pv-1", Path: layout().DevicePath(uid, "pv-1")}},
		Mounts:  []string{layout().Target(state.Filesystem, uid, "cache"), target, MapPath(layout(), "pv-1", uid)},
	}))
	inline := got.Records[state.PodVolumeID(driver, uid, "cache")]
	if m := inline.Mounts[uid]; !inline.Spec.Ephemeral || inline.Needs.Stage || inline.Spec.StagePath != "" || m.Phase != state.Present || !strings.HasSuffix(inline.Spec.SELinuxLabel, ":c1") {
		t.Errorf("inline: %+v", inline)
	}
	disk := got.Records[state.SharedID(driver, "vol-1")]
	if m := disk.Mounts[uid]; disk.Spec.Mode != state.Block || m.Target != target || m.DevicePath != layout().DevicePath(uid, "pv-1") ||
		m.Phase != state.Present || disk.Stage.Phase != state.Present || disk.Spec.StagePath != layout().StagePath(state.Block, "", "", "pv-1") {
		t.Errorf("block: %+v", disk)
	}
}

func TestBuiltinKinds(t *testing.T) {
	medium := state.VolumeWant{
		Names: []string{"memory"}, ID: state.PodVolumeID("kubernetes.io/empty-dir", uid, "memory"),
		Spec:  state.Spec{Driver: "kubernetes.io/empty-dir", Builtin: true, Name: "memory", Config: json.RawMessage(`{"medium":"Memory"}`)},
		Mount: state.MountSpec{Pod: state.Pod{UID: uid}, Target: layout().BuiltinTarget("kubernetes.io/empty-dir", uid, "memory")},
	}
	is := state.Seen{Exists: true}
	for _, tt := range []struct {
		plugin, name string
		seen         state.Seen
		want         state.Phase
	}{
		{"kubernetes.io~empty-dir", "plain", is, state.Present},
		{"kubernetes.io~empty-dir", "memory", mounted(1), state.Present},
		{"kubernetes.io~empty-dir", "memory", is, state.Entering}, // lost in a reboot
		{"kubernetes.io~configmap", "c", is, state.Present},
		{"kubernetes.io~secret", "s", mounted(1), state.Present},
		{"kubernetes.io~secret", "s", is, state.Entering},
		{"kubernetes.io~projected", "p", mounted(1), state.Present},
		{"kubernetes.io~downward-api", "d", mounted(1), state.Present},
		{"kubernetes.io~nfs", "n", mounted(1), state.Present},
		{"kubernetes.io~nfs", "n", is, state.Entering},
		{"kubernetes.io~local-volume", "l", mounted(1), state.Present},
	} {
		got := adopt(t, input(Disk{Volumes: []Volume{builtinVolume(tt.plugin, tt.name, tt.seen)}}, medium))
		if len(got.Records) != 1 {
			t.Fatalf("%s: records %v", tt.plugin, got.Records)
		}
		for _, v := range got.Records {
			if m := v.Mounts[uid]; m.Phase != tt.want || !v.Spec.Builtin || v.Spec.Driver != kindOf(tt.plugin) || m.Target != layout().BuiltinTarget(kindOf(tt.plugin), uid, tt.name) {
				t.Errorf("%s %s: %+v", tt.plugin, tt.name, v)
			}
		}
	}
}

func TestStagedForNobody(t *testing.T) {
	d := oneVolume()
	d.Volumes, d.Mounts = nil, d.Mounts[:1]
	v := adopt(t, input(d)).Records[state.SharedID(driver, "vol-1")]
	if v.Stage.Phase != state.Present || v.Spec.StagePath != stagePath("vol-1") || len(v.Mounts) != 0 {
		t.Errorf("record %+v", v)
	}
	block := Disk{Blocks: []Block{{Name: "pv-1", Notes: notes(blockNotes), Stage: state.Seen{Exists: true}}}}
	if v := adopt(t, input(block)).Records[state.SharedID(driver, "vol-1")]; v.Stage.Phase != state.Entering || v.Spec.Mode != state.Block {
		t.Errorf("block: record %+v", v)
	}
	// If nothing is mounted, a driver that stages nothing has nothing there.
	d.Staged[0].Seen, d.Mounts = state.Seen{Exists: true}, nil
	in := input(d)
	in.Drivers[driver] = Abilities{}
	if got := adopt(t, in); len(got.Records) != 0 || len(got.Empty) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestNotesThatACrashCutOffAreMadeUpForByTheWish(t *testing.T) {
	for _, text := range []string{"", `{"driverName":`, "null"} {
		d := oneVolume()
		d.Volumes[0].Notes = notes(text)
		if v := adopt(t, input(d, wantVolume())).Records[state.SharedID(driver, "vol-1")]; v.Mounts[uid].Phase != state.Present {
			t.Errorf("%q: record %+v", text, v)
		}
		if got := Adopt(input(d)); !strings.Contains(Against(got.Refusals, "a reason"), "cannot be read") && !strings.Contains(Against(got.Refusals, "a reason"), "missing") {
			t.Errorf("%q, wanted by no pod: %+v", text, got)
		}
	}
	d := oneVolume()
	d.Volumes[0].Notes, d.Volumes[0].Seen, d.Staged, d.Mounts = Notes{}, state.Seen{}, nil, nil
	if got := adopt(t, input(d)); len(got.Records) != 0 || len(got.Items) != 1 || got.Items[0].What != leftNothing {
		t.Errorf("an empty directory: %+v", got)
	}
}

// Adopt refuses, with its path, each thing that it does not understand or that would be lost.
func TestRefusals(t *testing.T) {
	local := builtinVolume("kubernetes.io~local-volume", "pv-1", mounted(1))
	for _, tt := range []struct {
		name, want string
		overrule   bool
		change     func(in *Input)
	}{
		{"a pod that no source lists", "no source lists a pod with the uid", true, func(in *Input) { in.Pods = nil }},
		{"with files", "the files of emptyDir cache be deleted", true, func(in *Input) {
			in.Pods = nil
			v := builtinVolume("kubernetes.io~empty-dir", "cache", state.Seen{Exists: true})
			v.Files = true
			in.Disk.Volumes = append(in.Disk.Volumes, v)
		}},
		{"a kind that is kept otherwise", "kind kubernetes.io/iscsi", false, func(in *Input) {
			in.Disk.Volumes = append(in.Disk.Volumes, builtinVolume("kubernetes.io~iscsi", "i", mounted(1)))
		}},
		{"a volume that was mounted in-tree and is translated here", "kind kubernetes.io/aws-ebs", false, func(in *Input) {
			in.Disk.Volumes = append(in.Disk.Volumes, builtinVolume("kubernetes.io~aws-ebs", "pv-2", mounted(1)))
		}},
		{"an unknown kind", "kind vendor/flex", false, func(in *Input) {
			in.Disk.Volumes = append(in.Disk.Volumes, builtinVolume("vendor~flex", "f", mounted(1)))
		}},
		{"a local volume on a device", "a local volume on a device", false, func(in *Input) {
			in.Disk = Disk{Volumes: []Volume{local}, Mounts: []string{root + "/plugins/kubernetes.io/local-volume/mounts/pv-1"}}
		}},
		{"a raw block volume of a built-in kind", "raw block volumes of kind kubernetes.io/local-volume", false, func(in *Input) {
			in.Disk.Devices = []Device{{Pod: uid, Plugin: "kubernetes.io~local-volume", Name: "x", Path: "/x"}}
		}},
		{"a device of no volume", "nothing below", false, func(in *Input) {
			in.Disk.Devices = []Device{{Pod: uid, Plugin: "kubernetes.io~csi", Name: "x", Path: "/x"}}
		}},
		{"a mount of no known volume", "belongs to no known volume", false, func(in *Input) {
			in.Disk.Mounts = append(in.Disk.Mounts, root+"/pods/"+string(uid)+"/volume-subpaths/other/main/0")
		}},
		{"another volume under the name", "the listed pod wants vol-2", false, func(in *Input) {
			w := wantVolume()
			w.Spec.Handle = "vol-2"
			in.Pods[uid] = state.PodWant{Volumes: []state.VolumeWant{w}}
		}},
		{"notes without a handle", "want both", false, func(in *Input) { in.Disk.Volumes[0].Notes = notes(`{"driverName":"d"}`) }},
		{"notes of another volume", `want "pv-1", the name of the directory`, false, func(in *Input) {
			in.Disk.Volumes[0].Notes = notes(strings.Replace(podNotes, "pv-1", "pv-9", 1))
		}},
		{"a mode that is to come", "want Persistent or Ephemeral", false, func(in *Input) {
			in.Disk.Volumes[0].Notes = notes(strings.Replace(podNotes, "Persistent", "Eternal", 1))
		}},
		{"a handle that is too long", "want at most 1024", false, func(in *Input) {
			in.Disk.Volumes[0].Notes = notes(strings.Replace(podNotes, "vol-1", strings.Repeat("x", 1025), 1))
		}},
		{"a stage of another volume", "its path says vol-1", false, func(in *Input) {
			in.Disk.Staged[0].Notes = notes(`{"driverName":"csi.example.com","volumeHandle":"vol-9"}`)
		}},
		{"a driver that does not answer", "start the driver first", false, func(in *Input) {
			in.Disk.Staged[0].Seen, in.Drivers = state.Seen{Exists: true}, nil
		}},
		{"a stage that is gone", "there is no staging directory", false, func(in *Input) { in.Disk.Staged = nil }},
		{"the volume twice in a pod", "the pod also has the volume at", false, func(in *Input) {
			in.Disk.Volumes = append(in.Disk.Volumes, csiVolume("pv-2", strings.Replace(podNotes, "pv-1", "pv-2", 1), mounted(5)))
		}},
		{"staged where its path does not say so", "whose staging path is another", false, func(in *Input) {
			in.Disk.Staged = append(in.Disk.Staged, Staged{Path: staged, Notes: notes(`{"driverName":"csi.example.com","volumeHandle":"vol-7"}`), Seen: mounted(3)})
		}},
		{"staged a second time", "whose staging path is another", false, func(in *Input) {
			in.Disk.Staged = append(in.Disk.Staged, Staged{Path: root + "/plugins/kubernetes.io/csi/pv/pv-1/globalmount", Notes: notes(globalNotes), Seen: mounted(3)})
		}},
		{"staged otherwise than the record says", "says that it is not staged there", false, func(in *Input) {
			id := state.SharedID(driver, "vol-1")
			in.Disk.Volumes = nil
			in.Journal = map[state.VolumeID]state.Volume{id: {ID: id, Spec: &state.Spec{}, Mounts: map[state.PodUID]state.Mount{uid: {Fact: state.Fact{Phase: state.Present}}}}}
		}},
		{"a block volume without notes", "is missing", false, func(in *Input) {
			in.Disk.Blocks = []Block{{Name: "pv-3", Published: map[state.PodUID]state.Seen{uid: {Exists: true, BlockDevice: true}}}}
		}},
	} {
		in := input(oneVolume())
		tt.change(&in)
		got := Adopt(in)
		if why := Against(got.Refusals, ""); !strings.Contains(why, tt.want) {
			t.Errorf("%s: refused by %q, want %q in it", tt.name, why, tt.want)
		}
		if why := Against(got.Refusals, "they are gone"); (why == "") != tt.overrule {
			t.Errorf("%s: with a reason: refused by %q", tt.name, why)
		}
	}
}

// Adopt changes none of its inputs: others read the journal's records too.
func TestInputsStayAsTheyAre(t *testing.T) {
	in := input(oneVolume(), wantVolume())
	first := adopt(t, in)
	in.Journal = first.Records
	v := in.Journal[state.SharedID(driver, "vol-1")]
	before := maps.Clone(v.Mounts)
	more := csiVolume("pv-1", podNotes, mounted(9))
	more.Pod = "other"
	in.Disk.Volumes = append(in.Disk.Volumes, more)
	Adopt(in)
	if !maps.EqualFunc(before, v.Mounts, func(a, b state.Mount) bool { return a.Phase == b.Phase && a.Target == b.Target }) {
		t.Errorf("mounts %v, were %v", v.Mounts, before)
	}
}

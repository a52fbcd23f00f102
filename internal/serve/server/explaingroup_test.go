package server

import (
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// The explanation of a pod says that its fsGroup is not applied, and why.
func TestAnFSGroupThatIsNotAppliedIsExplained(t *testing.T) {
	for _, tt := range []struct {
		want   string // "": no word of it
		change func(*state.Spec, *state.Mount, *manager.DriverStatus)
	}{
		{"fsGroup 4711 is not applied: the volume names no fsType, and the fsGroupPolicy of CSIDriver d is not File", func(*state.Spec, *state.Mount, *manager.DriverStatus) {}},
		{"the volume's access modes have no ReadWriteOnce, and the fsGroupPolicy of CSIDriver d is not File", func(s *state.Spec, _ *state.Mount, _ *manager.DriverStatus) {
			s.FSType, s.AccessModes = "xfs", []state.AccessMode{state.ReadWriteMany}
		}},
		{"fsGroup 4711 is not applied: the fsGroupPolicy of CSIDriver d is None", func(s *state.Spec, _ *state.Mount, _ *manager.DriverStatus) { s.FSType = "xfs" }},
		{"", func(_ *state.Spec, m *state.Mount, _ *manager.DriverStatus) { m.Ownership = state.OwnAlways }},
		{"", func(_ *state.Spec, m *state.Mount, _ *manager.DriverStatus) { m.FSGroup = nil }},
		{"", func(_ *state.Spec, m *state.Mount, _ *manager.DriverStatus) { m.ReadOnly = true }},
		{"", func(_ *state.Spec, _ *state.Mount, d *manager.DriverStatus) { d.MountGroup = true }},
		{"", func(s *state.Spec, _ *state.Mount, _ *manager.DriverStatus) { s.Builtin = true }},
		{"", func(s *state.Spec, _ *state.Mount, _ *manager.DriverStatus) { s.Mode = state.Block }},
	} {
		spec := state.Spec{Driver: "d", Handle: "v", Name: "v", Mode: state.Filesystem, AccessModes: []state.AccessMode{state.ReadWriteOnce}}
		m := state.Mount{Fact: state.Fact{Phase: state.Present}, MountSpec: state.MountSpec{FSGroup: new(int64(4711))}}
		d := manager.DriverStatus{DriverInfo: manager.DriverInfo{Name: "d"}, Up: true}
		tt.change(&spec, &m, &d)
		pod := state.Pod{UID: "u", Namespace: "default", Name: "web"}
		e, err := Explain(Facts{
			Now: now, Drivers: []manager.DriverStatus{d},
			Volumes: []manager.VolumeStatus{{Volume: state.Volume{ID: "d^v", Spec: &spec, Mounts: map[state.PodUID]state.Mount{"u": m}}}},
			Pods:    []manager.PodStatus{{Pod: pod, Listed: true, Volumes: []manager.PodVolumeStatus{{Names: []string{"data"}, ID: "d^v", Driver: "d", Mounted: true}}}},
		}, "pod", "default/web")
		if got := e.String(); err != nil || e.Verdict != Fine || strings.Contains(got, "fsGroup") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("%v: got\n%swant %q in it", err, got, tt.want)
		}
	}
}

// A pod with files that could not be given to its fsGroup is a problem, and its explanation names them; the page, which
// every user of the host reads, does not.
func TestFilesWithoutTheirGroupAreAProblem(t *testing.T) {
	f := AllFine()
	v := &f.Volumes[0].Volume
	uid := f.Pods[0].Pod.UID
	m := v.Mounts[uid]
	m.FSGroup, m.GroupFailed = new(int64(4711)), "set group of /x: 1 files failed: chown secret-name: operation not permitted"
	v.Mounts = map[state.PodUID]state.Mount{uid: m}
	name := f.Pods[0].Pod.Namespace + "/" + f.Pods[0].Pod.Name
	e, err := Explain(f, "pod", name)
	if got := e.String(); err != nil || e.Verdict == Fine || !strings.Contains(got, "fsGroup 4711 is not applied to all files: set group of /x: 1 files failed: chown secret-name") || !strings.Contains(got, "you can") {
		t.Errorf("%v\n%s", err, got)
	}
	problems := f.StuckProblems()
	if len(problems) != 1 || problems[0].Object != "pod "+name || !strings.Contains(problems[0].Message, "chown secret-name") {
		t.Errorf("problems: %+v", problems)
	}
	if e, _ := Explain(f.public(), "pod", name); e.Verdict == Fine || strings.Contains(e.String(), "secret-name") {
		t.Errorf("in public:\n%s", e)
	}
}

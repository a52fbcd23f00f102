package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Items: F20, N-55, N-69.
func TestLayoutIsTheKubelets(t *testing.T) {
	l := Layout{Root: "/var/lib/kubelet"}
	// The hash is sha256("vol-1"), by sha256sum.
	const hash = "d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49"
	for _, tc := range []struct{ name, got, want string }{
		{"registry", l.Registry(), "/var/lib/kubelet/plugins_registry"},
		{"plugins", l.Plugins(), "/var/lib/kubelet/plugins"},
		{"pods", l.Pods(), "/var/lib/kubelet/pods"},
		{"stage", l.StagePath(Filesystem, "csi.example", "vol-1", "pv-1"), "/var/lib/kubelet/plugins/kubernetes.io/csi/csi.example/" + hash + "/globalmount"},
		{"stage of block", l.StagePath(Block, "csi.example", "vol-1", "pv-1"), "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pv-1"},
		{"target", l.Target(Filesystem, "uid", "pv-1"), "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv-1/mount"},
		{"target of a name with dots", l.Target(Filesystem, "uid", "pv.a.b"), "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv.a.b/mount"},
		{"target of block", l.Target(Block, "uid", "pv-1"), "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pv-1/uid"},
		{"device", l.DevicePath("uid", "pv-1"), "/var/lib/kubelet/pods/uid/volumeDevices/kubernetes.io~csi/pv-1"},
		{"builtin", l.BuiltinTarget("kubernetes.io/empty-dir", "uid", "tmp"), "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~empty-dir/tmp"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, tc.got, tc.want)
		}
	}
}

// Rule 8: a handle reaches a path only as its hash.
func TestHandleNeverReachesAPath(t *testing.T) {
	for _, handle := range []string{"../../etc", "/etc", "a/b", "nul\x00", strings.Repeat("x", 4096)} {
		path := Layout{Root: "/r"}.StagePath(Filesystem, "csi.example", handle, "pv")
		if strings.Contains(path, handle) || strings.Count(path, "/") != 7 || len(path) > 200 {
			t.Errorf("handle %.20q gave %s", handle, path)
		}
	}
}

// Items: B21, F19, N-41.
func TestIDsAreApart(t *testing.T) {
	ids := []VolumeID{
		SharedID("a", "v"), SharedID("b", "v"), SharedID("a", "w"),
		PodVolumeID("a", "p", "v"), PodVolumeID("a", "q", "v"), PodVolumeID("a", "p", "w"),
	}
	for i, id := range ids {
		for _, other := range ids[:i] {
			if id == other {
				t.Errorf("two volumes have the id %s", id)
			}
		}
	}
	// The handle that every driver knows: "csi-" and sha256 of the UID followed by the name.
	if got, want := EphemeralHandle("vo", "l-1"), "csi-d2e8363faaac7ae76def3b14091d8eb5755f6b92e9531627aeec833a8731cc49"; got != want {
		t.Errorf("ephemeral handle: got %s, want %s", got, want)
	}
}

func TestPhaseIsAWordInText(t *testing.T) {
	for want, p := range map[string]Phase{"absent": Absent, "entering": Entering, "present": Present, "leaving": Leaving} {
		b, err := json.Marshal(p)
		if err != nil || string(b) != `"`+want+`"` || p.String() != want {
			t.Errorf("%s: marshalled %s, printed %s, %v", want, b, p, err)
		}
		var got Phase
		if err := json.Unmarshal(b, &got); err != nil || got != p {
			t.Errorf("%s: read back as %s, %v", want, got, err)
		}
	}
	if _, err := Phase(9).MarshalText(); err == nil {
		t.Error("a phase that does not exist: no error")
	}
	for _, text := range []string{"", "Present", "gone"} {
		p := Leaving
		if err := p.UnmarshalText([]byte(text)); err == nil || p != Leaving {
			t.Errorf("%q was read as %s, %v", text, p, err)
		}
	}
	if got := fmt.Sprint(Phase(9), Outcome(9)); got != "Phase(9) Outcome(9)" {
		t.Errorf("unknown values print as %s", got)
	}
}

func TestOutcomeNames(t *testing.T) {
	if got := fmt.Sprint(Done, Failed, Uncertain, Refused, Final); got != "done failed uncertain refused final" {
		t.Error(got)
	}
}

func TestCallErrorNamesCallAndCode(t *testing.T) {
	cause := errors.New("no such device")
	err := fmt.Errorf("stage: %w", &CallError{Outcome: Uncertain, Call: "NodeStageVolume", Code: "Internal", Err: cause})
	if got := err.Error(); got != "stage: NodeStageVolume: Internal: no such device" {
		t.Error(got)
	}
	if !errors.Is(err, cause) {
		t.Error("the cause is lost")
	}
	if e := AsCallError("other", err); e.Outcome != Uncertain || e.Call != "NodeStageVolume" {
		t.Errorf("a wrapped CallError became %+v", e)
	}
	if e := AsCallError("NodeStageVolume", cause); e.Outcome != Failed || e.Error() != "NodeStageVolume: no such device" {
		t.Errorf("another error became %+v, %v", e, e)
	}
}

// Equal compares every field except Claim and Migrated, which are for people, NoAttach, which decides only
// whether a new volume is attached, and Attachment and AttachName, which are in no call.
func TestSpecEqualLooksAtEveryField(t *testing.T) {
	differs(t, filled[Spec](), func(a, b Spec) bool { return a.Equal(&b) }, "Claim", "NoAttach", "Migrated", "Attachment", "AttachName")
}

// Equal compares every field except Names, which are for people, and Renewal, which differs
// from call to call.
func TestMountSpecEqualLooksAtEveryField(t *testing.T) {
	differs(t, filled[MountSpec](), MountSpec.Equal, "Names", "Renewal")
	a, b := int64(7), int64(7)
	if !(MountSpec{FSGroup: &a}).Equal(MountSpec{FSGroup: &b}) {
		t.Error("equal groups behind two pointers differ")
	}
}

// A mount that an earlier version made is no other for the mountPropagation, which its record lacks; any other entry of
// the context is compared.
func TestAMountOfAnEarlierVersionIsTheSameForAnyPropagation(t *testing.T) {
	with := func(keys ...string) MountSpec {
		m := MountSpec{Context: map[string]string{}}
		for _, k := range keys {
			m.Context[k] = "x"
		}
		return m
	}
	const key = "csi-volmgr.dev/mount-propagation"
	if !(MountSpec{}).Equal(with(key)) || !with(key).Equal(MountSpec{}) || !with("a", key).Equal(with("a")) {
		t.Error("a record without the propagation is of another mount")
	}
	if with("a", key).Equal(with("b", key)) || with(key).Equal(with("a", key)) || with("a", key).Equal(with(key)) {
		t.Error("another context is the same")
	}
}

// filled is a value with every field set.
func filled[T any]() (v T) {
	setAll(reflect.ValueOf(&v).Elem())
	return v
}

func setAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			setAll(field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		setAll(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		setAll(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("k").Convert(v.Type().Key()), reflect.New(v.Type().Elem()).Elem())
	case reflect.String:
		v.SetString("s")
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.Set(reflect.ValueOf(1).Convert(v.Type()))
	}
}

func differs[T any](t *testing.T, full T, equal func(T, T) bool, except ...string) {
	t.Helper()
	if !equal(full, full) {
		t.Error("a value differs from itself")
	}
	for i := range reflect.TypeFor[T]().NumField() {
		field := reflect.TypeFor[T]().Field(i)
		changed := full
		reflect.ValueOf(&changed).Elem().Field(i).SetZero()
		want := slices.Contains(except, field.Name)
		if got := equal(full, changed); got != want {
			t.Errorf("without %s: equal %v, want %v", field.Name, got, want)
		}
		if got := equal(changed, full); got != want {
			t.Errorf("%s only on the other side: equal %v, want %v", field.Name, got, want)
		}
	}
}

// Rule 3: a volume is in use, and not clear, until everything is known to be absent.
// Items: N-61.
func TestClearAndInUseFollowThePhases(t *testing.T) {
	for p := Absent; p <= Leaving; p++ {
		there := p != Absent
		attached := Volume{Attach: Fact{Phase: p}}
		staged := Volume{Stage: Fact{Phase: p}}
		mounted := Volume{Mounts: map[PodUID]Mount{"a": {}, "b": {Fact: Fact{Phase: p}}}}
		for _, tc := range []struct {
			name                    string
			v                       Volume
			clear, inUse, unmounted bool
		}{
			{"attach", attached, !there, false, true},
			{"stage", staged, !there, there, true},
			{"mount", mounted, !there, there, !there},
		} {
			if got := tc.v.Clear(); got != tc.clear {
				t.Errorf("%s %s: Clear %v", tc.name, p, got)
			}
			if got := tc.v.InUse(); got != tc.inUse {
				t.Errorf("%s %s: InUse %v", tc.name, p, got)
			}
			if got := tc.v.Unmounted(); got != tc.unmounted {
				t.Errorf("%s %s: Unmounted %v", tc.name, p, got)
			}
		}
	}
}

// Items: K02.
func TestOnlyReadWriteOncePodAloneIsExclusive(t *testing.T) {
	for _, tc := range []struct {
		modes []AccessMode
		want  bool
	}{
		{nil, false},
		{[]AccessMode{ReadWriteOnce}, false},
		{[]AccessMode{ReadWriteOncePod}, true},
		{[]AccessMode{ReadWriteOncePod, ReadOnlyMany}, false},
		{[]AccessMode{ReadWriteOnce, ReadWriteOncePod}, false},
	} {
		if got := (&Spec{AccessModes: tc.modes}).Exclusive(); got != tc.want {
			t.Errorf("%v: %v", tc.modes, got)
		}
	}
}

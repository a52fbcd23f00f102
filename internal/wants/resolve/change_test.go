package resolve_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// L14: an immutable object keeps its data, as with an API server.
func TestImmutableObjectsKeepTheirData(t *testing.T) {
	const (
		secret    = "{apiVersion: v1, kind: Secret, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, stringData: {k: VALUE}}"
		configMap = "{apiVersion: v1, kind: ConfigMap, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, data: {k: VALUE}}"
		binary    = "{apiVersion: v1, kind: ConfigMap, metadata: {name: s, labels: {a: LABEL}}, immutable: IMMUTABLE, binaryData: {k: VALUE}}"
	)
	for name, text := range map[string]string{"data": secret, "data ": configMap, "binaryData": binary} {
		faults := func(was, is []string) string {
			t.Helper()
			objects := func(values []string) runtime.Object {
				found, err := manifest.Decode("t", []byte(strings.NewReplacer(values...).Replace(text)))
				if err != nil {
					t.Fatal(err)
				}
				return found[0]
			}
			var all []string
			for _, f := range resolve.CheckChange(objects(was), objects(is)) {
				all = append(all, f.Field)
				if strings.Contains(f.String(), "b25l") || strings.Contains(f.String(), "dHdv") {
					t.Errorf("a value is told: %s", f)
				}
			}
			return strings.Join(all, " ")
		}
		one := []string{"LABEL", "x", "IMMUTABLE", "true", "VALUE", "b25l"}
		for want, is := range map[string][]string{
			"":                                     {"LABEL", "y", "IMMUTABLE", "true", "VALUE", "b25l"},
			strings.TrimSpace(name):                {"LABEL", "x", "IMMUTABLE", "true", "VALUE", "dHdv"},
			"immutable":                            {"LABEL", "x", "IMMUTABLE", "false", "VALUE", "b25l"},
			strings.TrimSpace(name) + " immutable": {"LABEL", "x", "IMMUTABLE", "false", "VALUE", "dHdv"},
		} {
			if got := faults(one, is); got != want {
				t.Errorf("%s: got faults of %q, want of %q", name, got, want)
			}
			if got := faults([]string{"LABEL", "x", "IMMUTABLE", "false", "VALUE", "b25l"}, is); got != "" {
				t.Errorf("%s, of one that may change: got faults of %q", name, got)
			}
		}
	}
}

// A pod's volumes may not change while it may run. Its other fields may, and so may the volumes of another pod with
// its name.
//
// Faults: A154.
func TestThePodsVolumesDoNotChange(t *testing.T) {
	const was = `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u1}, spec: {
  containers: [{name: web, image: web, volumeMounts: [{name: data, mountPath: /d}]}],
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}, {name: idle, emptyDir: {}}]}}`
	for name, c := range map[string]struct {
		change []string
		want   string
	}{
		"nothing":                   {nil, ""},
		"an annotation":             {[]string{"uid: u1", "uid: u1, annotations: {a: b}"}, ""},
		"another source":            {[]string{"claimName: data", "claimName: other"}, "spec.volumes"},
		"another kind":              {[]string{"persistentVolumeClaim: {claimName: data}", "emptyDir: {}"}, "spec.volumes"},
		"another volume":            {[]string{"name: data, persistent", "name: more, persistent", "{name: data, mount", "{name: more, mount"}, "spec.containers"},
		"no container uses it":      {[]string{"volumeMounts: [{name: data, mountPath: /d}]", "volumeMounts: []"}, "spec.containers"},
		"as a device":               {[]string{"volumeMounts: [{name: data, mountPath: /d}]", "volumeDevices: [{name: data, devicePath: /d}]"}, "spec.containers"},
		"one more":                  {[]string{"[{name: data, m", "[{name: idle, mountPath: /i}, {name: data, m"}, ""},
		"what no container used":    {[]string{"{name: idle, emptyDir: {}}", "{name: idle, hostPath: {path: /x}}"}, ""},
		"another path for the data": {[]string{"mountPath: /d", "mountPath: /e"}, ""},
		"another pod":               {[]string{"uid: u1", "uid: u2", "claimName: data", "claimName: other"}, ""},
		"it has ended":              {[]string{"claimName: data", "claimName: other", "spec: {", "status: {phase: Succeeded}, spec: {"}, ""},
	} {
		object := func(change ...string) runtime.Object {
			found, err := manifest.Decode("t", []byte(strings.NewReplacer(change...).Replace(was)))
			if err != nil {
				t.Fatal(name, err)
			}
			return found[0]
		}
		got := ""
		for _, f := range resolve.CheckChange(object(), object(c.change...)) {
			got += f.Field
			if !strings.Contains(f.String(), "data") || !strings.Contains(f.String(), "csi-volmgr delete pod web -n default") {
				t.Errorf("%s: the volume, or what to do, is not named: %s", name, f)
			}
		}
		if got != c.want {
			t.Errorf("%s: got faults of %q, want of %q", name, got, c.want)
		}
	}
}

// The limit of a volume in memory may grow while its pod runs, and nothing else about the volume may change
// (KEP-6030).
func TestTheSizeOfAVolumeInMemoryMayGrow(t *testing.T) {
	pod := func(emptyDir string) runtime.Object {
		found, err := manifest.Decode("t", []byte(`{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u1}, spec: {
  containers: [{name: web, image: web, volumeMounts: [{name: data, mountPath: /d}]}], volumes: [{name: data, emptyDir: `+emptyDir+`}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		return found[0]
	}
	for _, c := range []struct{ was, is, want string }{
		{"{medium: Memory, sizeLimit: 1Gi}", "{medium: Memory, sizeLimit: 2Gi}", ""},
		{"{medium: Memory, sizeLimit: 1Gi}", "{medium: Memory, sizeLimit: 1024Mi}", ""},
		{"{medium: Memory, sizeLimit: 2Gi}", "{medium: Memory, sizeLimit: 1Gi}", "spec.volumes (data).emptyDir.sizeLimit: found 1Gi, want at least the old limit, 2Gi: a volume does not shrink"},
		{"{medium: Memory, sizeLimit: 2Gi}", "{medium: Memory}", "spec.volumes (data).emptyDir.sizeLimit: found none, want a limit of 2Gi or more"},
		{"{medium: Memory}", "{medium: Memory, sizeLimit: 2Gi}", "spec.volumes (data).emptyDir.sizeLimit: found 2Gi, want none"},
		{"{medium: Memory, sizeLimit: 1Gi}", "{medium: Memory, sizeLimit: 2Gi, mode: 0700}", "another volume data"},
		{"{medium: Memory, sizeLimit: 1Gi}", "{sizeLimit: 2Gi}", "another volume data"},
		{"{sizeLimit: 1Gi}", "{sizeLimit: 2Gi}", "another volume data"},
		{"{medium: HugePages, sizeLimit: 1Gi}", "{medium: HugePages, sizeLimit: 2Gi}", "another volume data"},
	} {
		got := ""
		for _, f := range resolve.CheckChange(pod(c.was), pod(c.is)) {
			got += f.String()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, then %s: got %q, want %q", c.was, c.is, got, c.want)
		}
	}
}

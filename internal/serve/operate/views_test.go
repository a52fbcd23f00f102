package operate

import (
	"log/slog"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// sound is a journal without a problem.
type sound struct{}

func (sound) Recovery() state.Recovery { return state.Recovery{} }
func (sound) Room() error              { return nil }
func (sound) SpareErr() error          { return nil }

// A problem of a manifest has the file's path once; one of an object from a manifest names the object.
func TestAProblemNamesFileAndLineOnce(t *testing.T) {
	v := NewViews(ViewsConfig{Manifests: "/m"})
	for text, want := range map[string]string{
		"bad.yaml:3: document 1: spec: wrong": "/m/bad.yaml:3: document 1: spec: wrong",
		"being written":                       "/m/bad.yaml: being written",
		"bad.yaml: not a file":                "/m/bad.yaml: bad.yaml: not a file",
	} {
		if got := v.fileProblem(source.Problem{Provider: file.Name, Where: "bad.yaml", Text: text}).String(); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	m, err := manager.New(manager.Config{Store: journal.NewMemory(), Kernel: struct{ manager.Kernel }{}})
	if err != nil {
		t.Fatal(err)
	}
	v = NewViews(ViewsConfig{
		Cluster: func() []server.Problem { return nil }, Journal: sound{}, Manager: m, Manifests: "/m",
		Inputs: []func() []source.Problem{func() []source.Problem {
			return []source.Problem{{Provider: file.Name, Where: "pod a/b", Text: "wrong"}}
		}},
	})
	if got := v.Problems(); len(got) != 1 || got[0].String() != "source file: pod a/b: wrong" {
		t.Errorf("got %v", got)
	}
}

// get pv shows whose each volume is: a claim of the name of a volume's earlier claim is another one.
func TestWhoseEachVolumeIs(t *testing.T) {
	objects, err := manifest.Decode("test.yaml", []byte(`
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, uid: new}, spec: {volumeName: named}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: d, uid: d}, spec: {}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: before}, spec: {accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: c, uid: old}, csi: {driver: d, volumeHandle: a}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: free}, spec: {accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: f}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: kept}, spec: {accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: k}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: named}, spec: {accessModes: [ReadWriteOnce], csi: {driver: d, volumeHandle: n}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: ref}, spec: {accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: d}, csi: {driver: d, volumeHandle: r}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	catalog := source.New(source.Config{Resolve: resolve.Config{NodeName: "n"}, Logger: slog.New(slog.DiscardHandler)})
	if err := catalog.Apply("file", source.Update{Put: objects}); err != nil {
		t.Fatal(err)
	}
	made := controller.New(controller.Config{KV: journal.NewMemory(), Usage: nothing{}})
	v := NewViews(ViewsConfig{Catalog: catalog, Controller: made, Kept: func() map[string]string { return map[string]string{"kept": "default/gone"} }})
	want := map[string]string{
		"before": "Released default/c", "free": "Available ", "kept": "Released default/gone", "named": "Bound default/c", "ref": "Bound default/d",
	}
	got := v.PersistentVolumes()
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, pv := range got {
		if s := pv.Status + " " + pv.Claim; s != want[pv.Name] {
			t.Errorf("%s: %s, want %s", pv.Name, s, want[pv.Name])
		}
	}
}

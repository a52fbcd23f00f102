package wire

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// told is a manager's driver and kernel in memory. It records every call with the volume's driver and handle.
type told struct {
	mu    sync.Mutex
	calls []string
	there map[string]bool
}

func (d *told) note(verb string, v state.Volume, path string, there bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, verb+" "+string(v.Spec.Driver)+" "+v.Spec.Handle)
	d.there[path] = there
	return nil
}

func (d *told) Stage(_ context.Context, v state.Volume) error {
	return d.note("Stage", v, v.Spec.StagePath, true)
}

func (d *told) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	return time.Time{}, d.note("Publish", v, v.Mounts[pod].Target, true)
}

func (d *told) Unpublish(_ context.Context, v state.Volume, pod state.PodUID) error {
	return d.note("Unpublish", v, v.Mounts[pod].Target, false)
}

func (d *told) Unstage(_ context.Context, v state.Volume) error {
	return d.note("Unstage", v, v.Spec.StagePath, false)
}

func (d *told) Expand(context.Context, state.Volume, state.PodUID, int64) (int64, error) {
	return 0, nil
}

func (d *told) Look(_ context.Context, path string) (state.Seen, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return state.Seen{Exists: d.there[path], Mounted: d.there[path]}, nil
}

func (*told) Elsewhere(context.Context, string) ([]string, error) { return nil, nil }
func (*told) Size(context.Context, string) (state.Sizes, error)   { return state.Sizes{}, nil }
func (*told) Probe(context.Context, string) error                 { return nil }
func (*told) HostPath(context.Context, string) error              { return nil }

// A volume of an in-tree kind belongs to its CSI driver from its first record on. After a restart, without pod, claim
// and PersistentVolume, that driver unmounts it by the handle with which it mounted it. An inline volume and a
// claim's volume that name the same disk are one volume.
//
// Items: P04.
func TestATranslatedVolumeIsUnmountedAfterARestart(t *testing.T) {
	const driver, handle = "ebs.csi.aws.com", "vol-1"
	objects, err := manifest.Decode("test.yaml", []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: claimed, uid: claimed}, spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c, uid: c}, spec: {volumeName: pv}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: pv}, spec: {accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: c, uid: c}, awsElasticBlockStore: {volumeID: "aws://eu-1a/vol-1"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: inline, uid: inline}, spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, awsElasticBlockStore: {volumeID: "aws://eu-1a/vol-1"}}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range []state.PodUID{"claimed", "inline"} {
		synctest.Test(t, func(t *testing.T) {
			d, store := &told{there: map[string]bool{}}, journal.NewMemory()
			run := func() (*manager.Manager, func()) {
				m, err := manager.New(manager.Config{Store: store, Kernel: d, BootID: "boot", Sources: []string{"file"}})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- m.Run(ctx) }()
				m.DriverUp(manager.DriverInfo{Name: driver, Stage: true, MountsTarget: true}, d)
				return m, func() {
					cancel()
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			}
			m, end := run()
			catalog := source.New(source.Config{
				Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n"}, Sink: only{m, pod},
			})
			if err := catalog.Apply("file", source.Update{Put: objects}); err != nil {
				t.Fatal(err)
			}
			if err := m.WaitForAttachAndMount(within(t), pod); err != nil {
				t.Fatal(err)
			}
			end()
			loaded, err := store.Load(t.Context())
			if err != nil || len(loaded.Volumes) != 1 {
				t.Fatalf("records: %+v, %v", loaded, err)
			}
			m, end = run() // without any object
			m.SourceSynced("file")
			if err := m.WaitForUnmount(within(t), pod); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the manager unstages the volume after the pod has left
			end()
			var want []string
			for _, verb := range []string{"Stage", "Publish", "Unpublish", "Unstage"} {
				want = append(want, verb+" "+driver+" "+handle)
			}
			if !slices.Equal(d.calls, want) {
				t.Errorf("pod %s: calls\n%s\nwant\n%s", pod, strings.Join(d.calls, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// only passes the wishes of one pod to the manager.
type only struct {
	*manager.Manager
	pod state.PodUID
}

func (o only) SetPod(p state.PodWant) {
	if p.Pod.UID == o.pod {
		o.Manager.SetPod(p)
	}
}

// The operator chooses which kinds are translated.
func TestWhatIsTranslatedIsTheOperatorsToSay(t *testing.T) {
	c := dirs(t)
	c.Translate = []string{"cinder"}
	n, stop := start(t, c)
	defer stop()
	for source, want := range map[string]string{
		"awsElasticBlockStore: {volumeID: vol-1}": "awsElasticBlockStore are not translated",
		"cinder: {volumeID: c-1}":                 "",
	} {
		apply(t, n, `{apiVersion: v1, kind: Pod, metadata: {name: p, uid: p}, spec: {containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, `+source+`}]}}`)
		problem := n.catalog.Wants()["p"].Volumes[0].Problem
		if !strings.Contains(problem, want) || (problem == "") != (want == "") {
			t.Errorf("%s: got %q, want %q", source, problem, want)
		}
		if err := n.DeletePod(t.Context(), "default", "p"); err != nil {
			t.Fatal(err)
		}
	}
	if got := (Config{}).translated(); !slices.Equal(got, translate.Kinds()) {
		t.Errorf("by default: %q", got)
	}
}

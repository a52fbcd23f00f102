package server_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// serve starts a server and returns a client of it.
func serve(t *testing.T, f server.Facts) (*client.Client, *server.Backend, func() error) {
	t.Helper()
	b := server.NewBackend(f)
	socket, stop := server.Serve(t, b)
	c := client.New(socket)
	t.Cleanup(c.Close)
	return c, b, stop
}

// same fails the test unless the client lists exactly want.
func same[T any](t *testing.T, list func(context.Context) ([]T, error), want []T) {
	t.Helper()
	got, err := list(t.Context())
	if err != nil {
		t.Errorf("%T: %v", want, err)
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%T (-want +got):\n%s", want, diff)
	}
}

func TestEveryListArrivesWhole(t *testing.T) {
	f := server.StageUnavailable()
	f.Claims = []server.ClaimStatus{{Namespace: "default", Name: "data", Phase: "Bound", Retry: server.RetryStatus{Attempts: 2, Since: f.Now}}}
	f.PersistentVolumes = server.ClaimUnused().PersistentVolumes
	f.Problems = []server.Problem{{Source: "file", File: "/x", Line: 3, Message: "bad"}}
	f.Sockets = []server.SocketStatus{{Path: "/s", State: "refused", Problem: "no"}}
	c, _, _ := serve(t, f)
	same(t, c.Pods, server.ShownPods(f.Pods))
	same(t, c.Volumes, server.ShownVolumes(f.Volumes))
	same(t, c.Drivers, server.ShownDrivers(f.Drivers))
	same(t, c.Claims, f.Claims)
	same(t, c.PersistentVolumes, f.PersistentVolumes)
	same(t, c.Problems, append(slices.Clone(f.Problems), f.StuckProblems()...))
	same(t, c.Sockets, f.Sockets)
	v, err := c.Version(t.Context())
	if err != nil || v.Node != "n1" {
		t.Errorf("version: got %+v, %v", v, err)
	}
}

func TestOneIsFoundByNameOrID(t *testing.T) {
	f := server.AllFine()
	handle := "a/b//c?d#e %2F^.."
	f.Volumes[0].Volume.ID = state.SharedID("nfs.example.com", handle)
	f.Pods[0].Volumes[0].ID = f.Volumes[0].Volume.ID
	c, _, _ := serve(t, f)
	p, err := c.Pod(t.Context(), "default", "web")
	if diff := cmp.Diff(server.ShownPods(f.Pods)[0], p); err != nil || diff != "" {
		t.Errorf("pod: %v\n%s", err, diff)
	}
	v, err := c.Volume(t.Context(), f.Volumes[0].Volume.ID)
	if err != nil || v.Volume.ID != f.Volumes[0].Volume.ID {
		t.Errorf("volume: got %q, %v", v.Volume.ID, err)
	}
	if _, err := c.Pod(t.Context(), "default", "absent"); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("absent pod: got %v, want ErrNotFound", err)
	}
	e, err := c.Explain(t.Context(), "volume", handle)
	if err != nil || e.Name != handle {
		t.Errorf("explain: got %+v, %v", e, err)
	}
}

// A block device has permissions instead of a propagation; a volume is private, unless its containers ask for more.
func TestMountsSayWhatARuntimeNeeds(t *testing.T) {
	f := server.AllFine()
	raw := f.Volumes[0]
	spec := *raw.Volume.Spec
	spec.Mode, spec.Name = state.Block, "pv-raw"
	raw.Volume.ID, raw.Volume.Spec = "nfs.example.com^raw", &spec
	f.Volumes = append(f.Volumes, raw)
	f.Pods[0].Volumes = append(f.Pods[0].Volumes,
		manager.PodVolumeStatus{Names: []string{"raw"}, ID: raw.Volume.ID, Mode: state.Block, Mounted: true, HostPath: "/dev/x", ReadOnly: true},
		manager.PodVolumeStatus{Names: []string{"late"}, ID: "nfs.example.com^late"})
	c, b, _ := serve(t, f)
	got, err := c.Mounts(t.Context(), "default", "web")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, m := range got {
		lines = append(lines, fmt.Sprintf("%s %s %s %t %q %s", m.Name, m.HostPath, m.Mode, m.ReadOnly, m.Propagation+m.Permissions, m.SpecName))
	}
	want := []string{
		`cache /root/pods/web/cache Filesystem false "rprivate" cache`,
		`data /root/pods/web/mount Filesystem false "rprivate" pv-data`,
		`raw /dev/x Block true "r" pv-raw`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	all, err := c.Mounts(t.Context(), "", "")
	if diff := cmp.Diff(got, all); err != nil || diff != "" {
		t.Errorf("all mounts: %v\n%s", err, diff)
	}
	b.Serve(&runtimes{})
	for _, pod := range []string{"web", ""} {
		got, err = c.Mounts(t.Context(), "default", pod)
		if err != nil || len(got) != 3 || slices.ContainsFunc(got, func(m server.Mount) bool { return m.Note == "" }) {
			t.Errorf("pod %q with containers: %+v, %v", pod, got, err)
		}
	}
}

func TestVerbsReachTheDaemonAndTheirErrorsTheCaller(t *testing.T) {
	c, b, _ := serve(t, server.Facts{})
	ctx := t.Context()
	m := server.Manifest{Name: "web & co.yaml", Data: []byte("kind: Pod\n")}
	if _, err := c.Apply(ctx, m); err != nil {
		t.Error(err)
	}
	kept, err := c.Withdraw(ctx, m)
	if err != nil || len(kept) != 1 || kept[0].Result != "kept" {
		t.Errorf("withdraw: got %v, %v", kept, err)
	}
	claim := server.ClaimDeletion{Namespace: "default", Name: "data", Reason: "no longer needed & old"}
	done, err := c.DeleteClaim(ctx, claim)
	if err := errors.Join(c.DeletePod(ctx, "default", "web"), err); err != nil || done.Note != "its volume is kept" {
		t.Error(done, err)
	}
	claim.Data = true
	if _, err := c.DeleteClaim(ctx, claim); err != nil {
		t.Error(err)
	}
	applied, deleted := b.Asked()
	if diff := cmp.Diff([]server.Manifest{m}, applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"claim default/data no longer needed & old", "pod default/web", "claim default/data with its data no longer needed & old"}, deleted); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	for _, want := range []error{server.ErrNotFound, server.ErrInvalid, server.ErrConflict} {
		b.Fail(fmt.Errorf("%w: the reason", want))
		_, err := c.Apply(ctx, m)
		_, claimErr := c.DeleteClaim(ctx, claim)
		for _, err := range []error{err, c.DeletePod(ctx, "default", "web"), claimErr} {
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "the reason") {
				t.Errorf("got %v, want %v with its reason", err, want)
			}
		}
	}
}

func TestWatchTellsEachChangeOnce(t *testing.T) {
	f := server.AllFine()
	c, b, _ := serve(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := c.WatchPods(ctx, func(e server.Event[server.PodStatus]) error {
		got = append(got, fmt.Sprintf("%s %s %t", e.Type, e.Item.Pod.Name, e.Item.Ready))
		switch len(got) {
		case 2: // the client has the whole list
			b.Set(func(*server.Facts) {}) // sends no event: nothing about pods changes
			b.Set(func(f *server.Facts) {
				more := f.Pods[0]
				more.Pod.UID, more.Pod.Name = "another", "db"
				f.Pods = append(f.Pods[:1:1], more)
			})
		case 3:
			b.Set(func(f *server.Facts) { f.Pods = f.Pods[1:] })
		case 4:
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"set web true", "listed  false", "set db true", "gone web true"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStoppingDaemonEndsStreamsAtOnce(t *testing.T) {
	c, _, stop := serve(t, server.AllFine())
	err := c.WatchVolumes(t.Context(), func(e server.Event[server.VolumeStatus]) error {
		if e.Type == "listed" {
			go func() { _ = stop() }()
		}
		return nil
	})
	if !errors.Is(err, client.ErrCut) {
		t.Errorf("got %v, want ErrCut", err)
	}
	if err := stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestWaitTellsProgressUntilMounted(t *testing.T) {
	f := server.StageUnavailable()
	pods := f.Pods
	f.Pods, f.NotReady = nil, []string{"source file: not read yet"}
	c, b, _ := serve(t, f)
	w := client.Wait{Namespace: "default", Name: "web", For: client.Mounted, Timeout: time.Hour}
	var got []string
	last, err := c.Wait(t.Context(), w, func(p server.Progress) {
		got = append(got, fmt.Sprintf("%s known=%t waits=%d done=%t", p.Pod.Pod.Name, p.Known, len(p.NotReady), p.Done))
		switch len(got) {
		case 1:
			b.Set(func(f *server.Facts) { f.Pods, f.NotReady = pods, nil })
		case 2:
			b.Set(func(f *server.Facts) { f.Pods = server.AllFine().Pods })
		}
	})
	if err != nil || !last.Done || last.TimedOut {
		t.Errorf("got %+v, %v, want done", last, err)
	}
	want := []string{"web known=false waits=1 done=false", "web known=true waits=0 done=false", "web known=true waits=0 done=true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWaitThatRunsOutOfTimeSaysHowThePodStands(t *testing.T) {
	f := server.StageUnavailable()
	c, _, _ := serve(t, f)
	w := client.Wait{Namespace: "default", Name: "web", For: client.Mounted, Timeout: 0}
	last, err := c.Wait(t.Context(), w, nil)
	if err != nil || !last.TimedOut || last.Done {
		t.Fatalf("got %+v, %v, want timed out", last, err)
	}
	if diff := cmp.Diff(server.ShownPods(f.Pods)[0], last.Pod); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A new pod with the same name does not delay the end of a wait for the old pod's volumes.
func TestWaitForUnmountedIsForThePodsOfNow(t *testing.T) {
	f := server.AllFine()
	c, b, _ := serve(t, f)
	w := client.Wait{Namespace: "default", Name: "web", For: client.Unmounted, Timeout: time.Hour}
	n := 0
	last, err := c.Wait(t.Context(), w, func(p server.Progress) {
		if n++; n > 1 || p.Done {
			return
		}
		b.Set(func(f *server.Facts) {
			next := f.Pods[0]
			next.Pod.UID = "next"
			f.Pods = []manager.PodStatus{next}
		})
	})
	if err != nil || !last.Done || n != 2 {
		t.Errorf("got %+v after %d lines, %v, want done", last, n, err)
	}
}

// Every mount counts, even an uncertain one.
func TestUnmountedMeansNoMountInDoubt(t *testing.T) {
	for phase, want := range map[state.Phase]bool{state.Entering: false, state.Present: false, state.Leaving: false, state.Absent: true} {
		f := server.AllFine()
		f.Pods[0].Volumes[0].Phase = state.Absent
		f.Pods[0].Volumes[1].Phase = phase
		c, _, _ := serve(t, f)
		w := client.Wait{Namespace: "default", Name: "web", For: client.Unmounted}
		if last, err := c.Wait(t.Context(), w, nil); err != nil || last.Done != want {
			t.Errorf("%v: done=%t, %v, want %t", phase, last.Done, err, want)
		}
	}
}

func TestCallerThatGoesEndsItsWait(t *testing.T) {
	c, _, _ := serve(t, server.StageUnavailable())
	ctx, cancel := context.WithCancel(t.Context())
	w := client.Wait{Namespace: "default", Name: "web", For: client.Mounted, Timeout: time.Hour}
	_, err := c.Wait(ctx, w, func(server.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want canceled", err)
	}
}

func TestNoDaemonIsAnErrorOfItsOwn(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	_, err := client.New(socket).Version(t.Context())
	if !errors.Is(err, client.ErrNoDaemon) || !strings.Contains(err.Error(), socket) {
		t.Errorf("got %v, want ErrNoDaemon with the path", err)
	}
}

// first returns the first event of a watch.
func first[T any](t *testing.T, watch func(context.Context, func(server.Event[T]) error) error) server.Event[T] {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got *server.Event[T]
	err := watch(ctx, func(e server.Event[T]) error {
		if got == nil {
			got = &e
		}
		cancel()
		return nil
	})
	if err != nil || got == nil {
		t.Fatalf("%T: %v, %v", got, got, err)
	}
	return *got
}

func TestEveryListCanBeWatched(t *testing.T) {
	f := server.AllFine()
	f.Claims, f.PersistentVolumes = server.ClaimUnused().Claims, server.ClaimUnused().PersistentVolumes
	c, _, _ := serve(t, f)
	for what, got := range map[string]string{
		"web":             first(t, c.WatchPods).Item.Pod.Name,
		"pv-data":         first(t, c.WatchVolumes).Item.Volume.Spec.Name,
		"nfs.example.com": string(first(t, c.WatchDrivers).Item.Name),
		"data":            first(t, c.WatchClaims).Item.Name,
		"vol-1":           first(t, c.WatchPersistentVolumes).Item.Handle,
	} {
		if got != what {
			t.Errorf("got %q, want %q", got, what)
		}
	}
}

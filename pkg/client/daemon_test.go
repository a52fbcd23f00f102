package client

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/localdriver"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// program is the path of csi-volmgr.
var program string

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(dir string) (err error) {
		program, err = harness.Build(filepath.Join(dir, "csi-volmgr"), "cmd/csi-volmgr", harness.Raced()...)
		return err
	}))
}

// daemon starts csi-volmgr and returns a client of it.
func daemon(t *testing.T) (*Client, *harness.Node, *harness.Process) {
	t.Helper()
	n := harness.NewNode(t, program, "run/s")
	p := n.Answered(func() *harness.Process {
		return harness.Start(t, n.Path("log"), exec.Command(program, n.Daemon("--local-driver")...))
	})
	t.Cleanup(func() { n.ShowIfFailed(p) })
	c := New(n.Socket)
	t.Cleanup(c.Close)
	return c, n, p
}

// patient returns a context that ends the test's requests if they take too long.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var scratch = []byte(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
  "containers": [{"name": "c", "image": "none", "volumeMounts": [
    {"name": "d", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": "Enabled"}]}],
  "volumes": [{"name": "d", "emptyDir": {}}]}}`)

// What an agent does for a pod.
func TestPodIsMountedForItsContainersAndUnmounted(t *testing.T) {
	ctx := patient(t)
	c, n, _ := daemon(t)
	v, err := c.Version(ctx)
	if err != nil || v.Node != harness.Name || v.Version == "" {
		t.Errorf("version: %+v, %v", v, err)
	}
	done, err := c.Apply(ctx, "web.json", scratch)
	created := []Applied{{Kind: "Pod", Namespace: "default", Name: "web", Result: "created"}}
	if err != nil || !slices.Equal(done, created) {
		t.Fatalf("apply: %+v, %v", done, err)
	}
	var seen []Progress
	last, err := c.Wait(ctx, "default", "web", Mounted, func(p Progress) { seen = append(seen, p) })
	if err != nil || !last.Done || !last.Known || !last.Pod.Ready || len(seen) == 0 || !seen[len(seen)-1].Done {
		t.Fatalf("wait: %+v, %v after %+v", last, err, seen)
	}
	pods, err := c.Pods(ctx)
	if err != nil || len(pods) != 1 || len(pods[0].Volumes) != 1 {
		t.Fatalf("pods: %+v, %v", pods, err)
	}
	pod, vol := pods[0].Pod, pods[0].Volumes[0]
	if pod.Name != "web" || pod.UID == "" || !pods[0].Listed || !slices.Equal(vol.Names, []string{"d"}) || !vol.Mounted {
		t.Errorf("pod: %+v", pods[0])
	}
	if one, err := c.Pod(ctx, "default", "web"); err != nil || one.Pod != pod {
		t.Errorf("the pod: %+v, %v", one, err)
	}
	mounts, err := c.ContainerMounts(ctx, "default", "web", "c", RuntimeFeatures{RecursiveReadOnly: true})
	if err != nil || len(mounts) != 1 || mounts[0].HostPath != vol.HostPath || mounts[0].ContainerPath != "/d" ||
		!mounts[0].ReadOnly || !mounts[0].RecursiveReadOnly {
		t.Errorf("mounts: %+v, %v; the volume is at %s", mounts, err, vol.HostPath)
	}
	if st, err := os.Stat(vol.HostPath); err != nil || !st.IsDir() {
		t.Errorf("the volume: %v", err)
	}
	volumes, err := c.Volumes(ctx)
	if err != nil || len(volumes) != 1 || volumes[0].Volume.ID != vol.ID || volumes[0].Volume.Spec.Driver != vol.Driver ||
		!slices.Equal(volumes[0].Wanted, []state.PodUID{pod.UID}) {
		t.Errorf("volumes: %+v, %v", volumes, err)
	}
	e, err := c.Explain(ctx, "pod", "default/web")
	if err != nil || e.Verdict != "fine" || len(e.Lines) == 0 || e.Lines[0].Label != "wanted" {
		t.Errorf("explain: %+v, %v", e, err)
	}
	done, err = c.Withdraw(ctx, "web.json", scratch)
	if err != nil || len(done) != 1 || done[0].Result != "deleted" {
		t.Errorf("withdraw: %+v, %v", done, err)
	}
	if last, err = c.Wait(ctx, "default", "web", Unmounted, nil); err != nil || !last.Done {
		t.Errorf("wait: %+v, %v", last, err)
	}
	if _, err := os.Stat(vol.HostPath); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the volume after the pod: %v", err)
	}
	n.NothingHeld()
}

func TestRefusalIsOfItsKind(t *testing.T) {
	ctx := patient(t)
	c, _, _ := daemon(t)
	_, err := c.Pod(ctx, "default", "absent")
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != http.StatusNotFound || e.Reason != "notFound" || e.Message == "" ||
		!errors.Is(err, ErrNotFound) {
		t.Errorf("an absent pod: %#v", err)
	}
	_, err = c.Apply(ctx, "bad.yaml", []byte("kind: Pood\napiVersion: v1\n"))
	if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrNotFound) {
		t.Errorf("a bad manifest: %#v", err)
	}
	if _, err := c.Wait(ctx, "default", "web", "loved", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a wait for no goal: %#v", err)
	}
	if e, err := c.Explain(ctx, "pod", "default/absent"); err != nil || e.Verdict != "unknown" {
		t.Errorf("explain an absent pod: %+v, %v", e, err)
	}
}

// A watch tells of what is there, then of changes, until the daemon goes.
func TestWatchTellsOfEveryPodUntilTheDaemonGoes(t *testing.T) {
	ctx := patient(t)
	c, _, p := daemon(t)
	var types []string
	err := c.WatchPods(ctx, func(e PodEvent) error {
		if e.Type == "set" && len(types) > 0 && types[len(types)-1] == "set" {
			return nil // another change of the same pod
		}
		types = append(types, e.Type)
		switch {
		case e.Type == "listed":
			_, err := c.Apply(ctx, "web.json", scratch)
			return err
		case e.Item.Pod.Name != "web":
			return errors.New("an event without its pod")
		case e.Type == "set":
			return c.Do(ctx, http.MethodDelete, "/v1/pods/default/web", nil, nil)
		}
		return p.Ask()
	})
	if !errors.Is(err, ErrCut) || !slices.Equal(types, []string{"listed", "set", "gone"}) {
		t.Errorf("%q, then %v", types, err)
	}
	if _, err := c.Version(ctx); !errors.Is(err, ErrNoDaemon) {
		t.Errorf("without a daemon: %v", err)
	}
	enough := errors.New("enough")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(enough)
	if err := c.WatchPods(ended, nil); !errors.Is(err, enough) {
		t.Errorf("after the context's end: %v", err)
	}
}

// What a front end does for a volume that it names itself.
func TestNamedVolumeIsMadeMountedAndRemoved(t *testing.T) {
	ctx := patient(t)
	c, n, _ := daemon(t)
	n.DriverUp(localdriver.DefaultName)
	class := "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: files}\n" +
		"parameters: {type: directory}\nprovisioner: " + localdriver.DefaultName + "\n"
	_, err := c.Apply(ctx, "class.yaml", []byte(class))
	must(t, err)
	made, err := c.CreateNamed(ctx, NamedRequest{
		Name: "shop/db", FrontEnd: "mount", Options: map[string]string{"class": "files", "reclaim": "Retain"},
	})
	if err != nil || made.Name != "shop/db" || made.Claim != "shop/db" || made.FrontEnd != "mount" || made.Problem != "" {
		t.Fatalf("create: %+v, %v", made, err)
	}
	path, err := c.MountNamed(ctx, "shop/db")
	must(t, err)
	if st, err := os.Stat(path); err != nil || !st.IsDir() {
		t.Errorf("the path %q: %v", path, err)
	}
	all, err := c.NamedVolumes(ctx)
	if err != nil || len(all) != 1 || all[0].Mountpoint != path || all[0].Pod != made.Pod {
		t.Errorf("named volumes: %+v, %v; mounted at %s", all, err, path)
	}
	claims, err := c.Claims(ctx)
	if err != nil || len(claims) != 1 || claims[0].Phase != "Bound" || claims[0].Driver != localdriver.DefaultName ||
		claims[0].CapacityBytes == 0 {
		t.Errorf("claims: %+v, %v", claims, err)
	}
	drivers, err := c.Drivers(ctx)
	if err != nil || !slices.Contains(drivers, DriverStatus{Name: localdriver.DefaultName, Up: true}) {
		t.Errorf("drivers: %+v, %v", drivers, err)
	}
	if problems, err := c.Problems(ctx); err != nil || len(problems) != 0 {
		t.Errorf("problems: %+v, %v", problems, err)
	}
	if note, err := c.RemoveNamed(ctx, "shop/db"); err != nil || note == "" {
		t.Errorf("remove: %q, %v; want where the storage stays", note, err)
	}
	n.NoVolumes()
	n.NothingHeld()
}

// Do makes the requests that have no method here: the body and the answer are those of the caller.
func TestDoMakesAnyRequest(t *testing.T) {
	ctx := patient(t)
	c, _, _ := daemon(t)
	if err := c.Do(ctx, http.MethodPost, "/v1/check?file=web.json", scratch, nil); err != nil {
		t.Errorf("a manifest as it is: %v", err)
	}
	// A value in JSON, refused: it arrived as what it is.
	unknown := map[string]string{"name": "shop/db", "frontEnd": "mount", "colour": "red"}
	err := c.Do(ctx, http.MethodPost, "/v1/named", unknown, nil)
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(e, ErrInvalid) || !strings.Contains(e.Message, "colour") {
		t.Errorf("a value: %v", err)
	}
	var drain struct {
		Mode   string `json:"mode"`
		Reason string `json:"reason"`
	}
	err = c.Do(ctx, http.MethodPost, "/v1/drain?mode=hold&reason=a+test", nil, &drain)
	if err != nil || drain.Mode != "hold" || drain.Reason != "a test" {
		t.Errorf("drain: %+v, %v", drain, err)
	}
	var metrics bytes.Buffer
	err = c.Do(ctx, http.MethodGet, "/metrics", nil, &metrics)
	if err != nil || !bytes.Contains(metrics.Bytes(), []byte("\n# TYPE ")) {
		t.Errorf("metrics: %v\n%s", err, metrics.Bytes())
	}
	if err := c.Do(ctx, http.MethodPost, "/v1/drain", func() {}, nil); err == nil {
		t.Error("a function as a body: no error")
	}
	// A watch goes on until the caller has seen enough of it.
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	var events bytes.Buffer
	err = c.Do(watched, http.MethodGet, "/v1/drivers?watch=true", nil, writer(func(b []byte) {
		events.Write(b)
		if bytes.Contains(events.Bytes(), []byte(`{"type":"listed"}`)) {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) || ctx.Err() != nil {
		t.Errorf("a watch: %v\n%s", err, events.Bytes())
	}
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

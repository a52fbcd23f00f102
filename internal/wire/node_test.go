package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover/disk"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "helper" {
		if err := ServeHelper(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	drivertest.Enter()
	goleak.VerifyTestMain(m)
}

// dirs returns the configuration of one node. Unix sockets need short paths, and those of t.TempDir are long.
func dirs(t *testing.T) Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Config{Root: filepath.Join(dir, "root"), StateDir: filepath.Join(dir, "state"), RuntimeDir: filepath.Join(dir, "run"), Name: "n1", Logger: slog.New(slog.DiscardHandler)}
}

// start runs a node until the test or stop ends it.
func start(t *testing.T, c Config) (*Node, func()) {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return n, stop
}

func TestOneRootHasOneManager(t *testing.T) {
	c := dirs(t)
	_, stop := start(t, c)
	other := c
	other.StateDir += "2"
	if _, err := New(other); err == nil || !strings.Contains(err.Error(), c.Root) {
		t.Errorf("a second manager on the root: %v", err)
	}
	other = c
	other.Root += "2"
	if _, err := New(other); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("a second manager on the journal: %v", err)
	}
	stop()
	n, err := New(c)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func TestARootWithAKubeletIsRefused(t *testing.T) {
	c := dirs(t)
	path := filepath.Join(c.Root, "pod-resources/kubelet.sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(c)
	if !errors.Is(err, disk.ErrKubelet) || !strings.Contains(err.Error(), "--root-dir="+filepath.Join(c.Root, "plugins/csi-volmgr")) {
		t.Errorf("%v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	n, err := New(c) // the socket of a kubelet that is gone
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

const scratchPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: web, image: web, volumeMounts: [{name: scratch, mountPath: /s}]}]
  volumes: [{name: scratch, emptyDir: {}}]
`

func apply(t *testing.T, n *Node, text string) []server.Applied {
	t.Helper()
	a, err := n.Apply(t.Context(), server.Manifest{Name: "-", Data: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func uidOf(t *testing.T, n *Node, name string) state.PodUID {
	t.Helper()
	for {
		changed := n.Manager().Changed()
		for _, p := range n.Manager().Pods() {
			if p.Pod.Name == name {
				return p.Pod.UID
			}
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("no pod " + name)
		}
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestWhatWasAppliedOutlivesTheDaemon: a pod applied through the API is wanted after a restart, keeps its data, and
// is gone after its deletion.
func TestWhatWasAppliedOutlivesTheDaemon(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	if a := apply(t, n, scratchPod); len(a) != 1 || a[0].Result != "created" {
		t.Errorf("%+v", a)
	}
	uid := uidOf(t, n, "web")
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(n.Manager().GetMountedVolumesForPod(uid)["scratch"].HostPath, "page")
	if err := os.WriteFile(page, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop()
	n, stop = start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(page); err != nil {
		t.Errorf("data is gone: %v", err)
	}
	if a := apply(t, n, scratchPod); a[0].Result != "unchanged" {
		t.Errorf("%+v", a)
	}
	if err := n.DeletePod(t.Context(), "default", "web"); err != nil {
		t.Fatal(err)
	}
	if err := n.Manager().WaitForUnmount(within(t), uid); err != nil {
		t.Fatal(err)
	}
	if err := n.DeletePod(t.Context(), "default", "web"); !errors.Is(err, server.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	stop()
	left, err := os.ReadDir(filepath.Join(c.Root, "pods"))
	if err != nil || len(left) != 0 {
		t.Errorf("left in pods: %v, %v", left, err)
	}
}

func TestAManifestFilesPodIsNotDeletedThroughTheAPI(t *testing.T) {
	c := dirs(t)
	c.Manifests = t.TempDir()
	if err := os.WriteFile(filepath.Join(c.Manifests, "web.yaml"), []byte(scratchPod), 0o600); err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, c)
	if err := n.Manager().WaitForAttachAndMount(within(t), uidOf(t, n, "web")); err != nil {
		t.Fatal(err)
	}
	err := n.DeletePod(t.Context(), "default", "web")
	if !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), c.Manifests) {
		t.Errorf("%v", err)
	}
}

func TestWithdrawKeepsClaims(t *testing.T) {
	n, _ := start(t, dirs(t))
	const claim = "\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}\n"
	apply(t, n, scratchPod+claim)
	got, err := n.Withdraw(t.Context(), server.Manifest{Name: "-", Data: []byte(scratchPod + claim)})
	if err != nil || len(got) != 2 || got[0].Result != "deleted" || got[1].Result != "kept" || !strings.Contains(got[1].Note, "delete pvc data") {
		t.Errorf("%+v, %v", got, err)
	}
	claims := n.Views().Claims()
	if len(claims) != 1 || claims[0].Phase != "Pending" || claims[0].Class != "fast" {
		t.Errorf("%+v", claims)
	}
	if _, err := n.DeleteClaim(within(t), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "data", Reason: "no longer needed"}); err != nil {
		t.Error(err)
	}
	if got := auditOf(t, n); got != "delete pvc default/data no longer needed; done" {
		t.Errorf("audit log: %s", got)
	}
	if claims := n.Views().Claims(); len(claims) != 0 {
		t.Errorf("%+v", claims)
	}
	if _, err := n.Apply(t.Context(), server.Manifest{Name: "f.yaml", Data: []byte("kind: Pod\nbad")}); !errors.Is(err, server.ErrInvalid) || !strings.Contains(err.Error(), "f.yaml") {
		t.Errorf("%v", err)
	}
}

// When Withdraw fails at one object, the objects before it are already shown as withdrawn.
func TestAWithdrawalThatFailsMidwayIsShownAsFarAsItWent(t *testing.T) {
	n, _ := start(t, dirs(t))
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "another-source"}}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}
	if err := n.catalog.Put(made.Name, volume); err != nil {
		t.Fatal(err)
	}
	const theirs = "\n---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: another-source}\nspec: {csi: {driver: d, volumeHandle: h}}\n"
	for range 50 { // otherwise the change may just have shown by itself
		apply(t, n, scratchPod)
		got, err := n.Withdraw(t.Context(), server.Manifest{Name: "-", Data: []byte(scratchPod + theirs)})
		if !errors.Is(err, server.ErrConflict) || len(got) != 1 || got[0].Result != "deleted" {
			t.Fatalf("%+v, %v", got, err)
		}
		for _, p := range n.Manager().Pods() {
			if p.Listed {
				t.Fatalf("shown as wanted once it is taken back: %+v", p)
			}
		}
	}
}

func TestAClaimThatAPodNamesIsNotDeleted(t *testing.T) {
	n, _ := start(t, dirs(t))
	apply(t, n, strings.Replace(scratchPod, "emptyDir: {}", "persistentVolumeClaim: {claimName: data}", 1)+
		"\n---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], storageClassName: fast, resources: {requests: {storage: 1Gi}}}\n")
	if _, err := n.DeleteClaim(t.Context(), audit.By{}, server.ClaimDeletion{Namespace: "default", Name: "data"}); !errors.Is(err, server.ErrConflict) || !strings.Contains(err.Error(), "pod default/web") {
		t.Errorf("%v", err)
	}
	if got := auditOf(t, n); got != "" { // only the daemon's log has the refusal
		t.Errorf("audit log: %s", got)
	}
}

func manifestOf(text string) server.Manifest { return server.Manifest{Name: "-", Data: []byte(text)} }

func TestANodeWithoutItsPathsIsRefused(t *testing.T) {
	for field, spoil := range map[string]func(*Config){
		"Root":            func(c *Config) { c.Root = "" },
		"StateDir":        func(c *Config) { c.StateDir = "state" },
		"RegistrationDir": func(c *Config) { c.RegistrationDir = "x" },
		"Manifests":       func(c *Config) { c.Manifests = "./m" },
		"Name":            func(c *Config) { c.Name = "" },
	} {
		c := dirs(t)
		spoil(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), field+": found") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

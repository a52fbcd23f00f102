package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

const (
	fileSystem = "Filesystem"
	block      = "Block"
	rwo        = "ReadWriteOnce"
	rwop       = "ReadWriteOncePod"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
	}
}

// Items: C15.
// Scenarios: U-30, U-176.
func TestPodMountsWritesAndFindsItsDataAgain(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: low}"
		n.Apply(n.driver.class(), settings, claim("data", "64Mi", fileSystem, rwo), harness.Pod("web",
			harness.FromClaim("data", "data"),
			volume{Name: "scratch", Source: "emptyDir: {}"},
			volume{Name: "memory", Source: "emptyDir: {medium: Memory, sizeLimit: 1Mi}"},
			volume{Name: "settings", Source: "configMap: {name: settings}"}))
		n.Mounted("web")
		for _, v := range []string{"data", "scratch", "memory"} {
			write(t, filepath.Join(n.HostPath("web", v), "f"), "of "+v)
		}
		wantFile(t, filepath.Join(n.HostPath("web", "settings"), "level"), "low")
		data := n.HostPath("web", "data")
		if n.driver.sizes {
			wantSize(t, data, 64<<20)
		}
		if got := n.driver.proxy.count("NodeStageVolume", "NodePublishVolume"); got != 2 {
			t.Errorf("stage and publish calls: got %d, want 2", got)
		}
		n.DeletePods("web")
		n.NoVolumes()
		n.Apply(harness.Pod("again", harness.FromClaim("data", "data")))
		n.Mounted("again")
		wantFile(t, filepath.Join(n.HostPath("again", "data"), "f"), "of data")
		n.DeletePods("again")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// wantSize fails the test if the file system at path does not have about that many bytes. A
// file system uses less than a third for itself.
func wantSize(t *testing.T, path string, bytes uint64) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	if got := st.Blocks * uint64(st.Bsize); got > bytes || got < bytes-bytes/3 {
		t.Errorf("file system at %s: got %d bytes, want about %d", path, got, bytes)
	}
}

func TestConfigMapFollowsItsObject(t *testing.T) {
	t.Parallel()
	n := newNode(t, kinds()[0])
	settings := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: %s}"
	n.Apply(fmt.Sprintf(settings, "low"), harness.Pod("web", volume{Name: "settings", Source: "configMap: {name: settings}"}))
	n.Mounted("web")
	file := filepath.Join(n.HostPath("web", "settings"), "level")
	wantFile(t, file, "low")
	n.Apply(fmt.Sprintf(settings, "high"))
	n.asWanted("web")
	wantFile(t, file, "high")
	n.DeletePods("web")
	n.nothingLeft()
}

// Items: A32.
func TestReadOnlyVolumeRefusesWrites(t *testing.T) {
	eachKind(t, func(n *node) {
		ro := volume{Name: "data", Source: "persistentVolumeClaim: {claimName: data, readOnly: true}"}
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("reader", ro))
		n.Mounted("reader")
		m := n.Mount("reader", "data")
		if !m.ReadOnly {
			n.T.Error("the mount is not said to be read-only")
		}
		if err := os.WriteFile(filepath.Join(m.HostPath, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
			n.T.Errorf("write: got %v, want EROFS", err)
		}
		n.DeletePods("reader")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

func TestBlockVolumeIsADeviceWithItsData(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		disk := harness.FromClaim("disk", "disk")
		disk.Block = true
		n.Apply(n.driver.class(), claim("disk", "32Mi", block, rwo), harness.Pod("db", disk))
		n.Mounted("db")
		content := bytes.Repeat([]byte("block"), 4096/5+1)[:4096]
		f, err := os.OpenFile(n.HostPath("db", "disk"), os.O_RDWR|os.O_SYNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := f.Stat(); err != nil || st.Mode()&os.ModeDevice == 0 {
			t.Errorf("got %v, %v, want a block device", st.Mode(), err)
		}
		if _, err := f.WriteAt(content, 1<<20); err != nil {
			t.Error(err)
		}
		f.Close()
		if m := n.Mount("db", "disk"); m.Mode != state.Block {
			t.Errorf("mode: got %s, want %s", m.Mode, state.Block)
		}
		n.DeletePods("db")
		n.NoVolumes()
		n.Apply(harness.Pod("again", disk))
		n.Mounted("again")
		got := make([]byte, len(content))
		f, err = os.Open(n.HostPath("again", "disk"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got, 1<<20); err != nil || !bytes.Equal(got, content) {
			t.Errorf("read back: got %.16q, %v, want %.16q", got, err, content)
		}
		f.Close()
		n.DeletePods("again")
		n.DeleteClaims("disk")
		n.nothingLeft()
	})
}

// Items: B15, I03, I04.
func TestVolumeGrowsWhileItIsMounted(t *testing.T) {
	eachKind(t, func(n *node) {
		t := n.T
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		data := n.HostPath("web", "data")
		write(t, filepath.Join(data, "f"), "before")
		n.Apply(claim("data", "128Mi", fileSystem, rwo))
		harness.Until(n.Node, "the claim to have grown", n.API.WatchClaims, func(all map[string]server.ClaimStatus) bool {
			c := all["default/data"]
			return c.CapacityBytes >= 128<<20 && c.NodeBytes >= 128<<20
		})
		if n.driver.sizes {
			wantSize(t, data, 128<<20)
		}
		wantFile(t, filepath.Join(data, "f"), "before")
		if got := n.driver.proxy.count("NodePublishVolume"); got != 1 {
			t.Errorf("publish calls: got %d, want 1", got)
		}
		n.DeletePods("web")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// Items: A09, C07, N-54, N-63, N-60.
// Scenarios: U-126.
func TestTwoPodsShareOneVolume(t *testing.T) {
	eachKind(t, func(n *node) {
		t, p := n.T, n.driver.proxy
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("a", harness.FromClaim("data", "data")), harness.Pod("b", harness.FromClaim("data", "data")))
		n.Mounted("a")
		n.Mounted("b")
		write(t, filepath.Join(n.HostPath("a", "data"), "f"), "from a")
		wantFile(t, filepath.Join(n.HostPath("b", "data"), "f"), "from a")
		if s, pub := p.count("NodeStageVolume"), p.count("NodePublishVolume"); s != 1 || pub != 2 {
			t.Errorf("calls: got %d stages and %d publishes, want 1 and 2", s, pub)
		}
		n.DeletePods("a")
		wantFile(t, filepath.Join(n.HostPath("b", "data"), "f"), "from a")
		if got := p.count("NodeUnstageVolume"); got != 0 {
			t.Errorf("unstage calls while a pod has the volume: got %d", got)
		}
		n.DeletePods("b")
		n.DeleteClaims("data")
		if got := p.count("NodeUnstageVolume"); got != 1 {
			t.Errorf("unstage calls: got %d, want 1", got)
		}
		n.nothingLeft()
	})
}

// Items: K01, N-48.
// Scenarios: U-141.
func TestVolumeForOnePodWaitsForThatPod(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwop), harness.Pod("first", harness.FromClaim("data", "data")))
		n.Mounted("first")
		n.Apply(harness.Pod("second", harness.FromClaim("data", "data")))
		if reason := n.blocked("second"); !strings.Contains(reason, "first") {
			n.T.Errorf("the second pod is blocked by %q, want the first pod's name in it", reason)
		}
		write(n.T, filepath.Join(n.HostPath("first", "data"), "f"), "the first pod's still")
		if got := n.driver.proxy.count("NodeUnpublishVolume", "NodeUnstageVolume"); got != 0 {
			n.T.Errorf("got %d calls that take the volume from the first pod", got)
		}
		n.DeletePods("first")
		n.Mounted("second")
		n.DeletePods("second")
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

func TestInlineVolumeLivesAndDiesWithItsPod(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class(), harness.Pod("web", volume{Name: "inline", Source: fmt.Sprintf("csi: {driver: %s}", n.driver.name)}))
		n.Mounted("web")
		write(n.T, filepath.Join(n.HostPath("web", "inline"), "f"), "inline")
		if got := n.driver.proxy.count("NodeStageVolume", "CreateVolume", "ControllerPublishVolume"); got != 0 {
			n.T.Errorf("got %d calls that an inline volume must not have", got)
		}
		n.DeletePods("web")
		n.nothingLeft()
	})
}

// Items: A02, N-53, N-65, N-74, N-104, N-61.
// Scenarios: U-25.
// Sidecars: SA-01.
func TestAttachComesFirstAndDetachLast(t *testing.T) {
	eachKind(t, func(n *node) {
		want := 0
		if n.driver.attach {
			want = 1
		}
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		n.DeletePods("web")
		n.DeleteClaims("data")
		var steps []string
		order := []string{"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume"}
		if !n.driver.attach {
			order = order[1:5]
		}
		n.driver.proxy.mu.Lock()
		for _, c := range n.driver.proxy.calls {
			if strings.HasSuffix(c.name, "publishVolume") || strings.HasSuffix(c.name, "PublishVolume") || strings.HasSuffix(c.name, "tageVolume") {
				steps = append(steps, c.name)
			}
		}
		n.driver.proxy.mu.Unlock()
		if got := strings.Join(steps, " "); got != strings.Join(order, " ") {
			n.T.Errorf("calls: got %s, want %s", got, strings.Join(order, " "))
		}
		if got := n.driver.proxy.count("ControllerPublishVolume"); got != want {
			n.T.Errorf("attach calls: got %d, want %d", got, want)
		}
		n.nothingLeft()
	})
}

func TestDataStaysUntilItsClaimIsDeleted(t *testing.T) {
	eachKind(t, func(n *node) {
		all := manifest(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		file := filepath.Join(n.manifests(), "web.yaml")
		moveIn(n.T, file, all)
		n.Mounted("web")
		if r := n.CLI("", "delete", "pvc", "data"); r.Code == 0 {
			n.T.Errorf("delete a claim in use: got %q, want a refusal", r.Stdout)
		}
		// If the file disappears, the daemon removes pod and claim, but not the data.
		if err := os.Remove(file); err != nil {
			n.T.Fatal(err)
		}
		n.Do("", "wait", "pod", "web", "--for=unmounted", "--timeout", harness.Patience.String())
		n.NoVolumes()
		if ids := n.driver.proxy.volumes(n.T); len(ids) != 1 {
			n.T.Errorf("the driver's volumes: got %q, want the one", ids)
		}
		if got := n.driver.proxy.count("DeleteVolume"); got != 0 {
			n.T.Errorf("delete calls: got %d, want 0", got)
		}
		moveIn(n.T, file, all)
		n.Mounted("web")
		if got := n.driver.proxy.count("CreateVolume"); got != 1 {
			n.T.Errorf("create calls: got %d, want 1: the claim has its volume still", got)
		}
		if err := os.Remove(file); err != nil {
			n.T.Fatal(err)
		}
		n.Do("", "wait", "pod", "web", "--for=unmounted", "--timeout", harness.Patience.String())
		n.DeleteClaims("data")
		n.nothingLeft()
	})
}

// moveIn writes a manifest next to the directory and renames it into it.
func moveIn(t *testing.T, file, content string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(filepath.Dir(file)), "new.yaml")
	write(t, tmp, content)
	if err := os.Rename(tmp, file); err != nil {
		t.Fatal(err)
	}
}

func TestListsAndExplanationsNameWhatIsThere(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo), harness.Pod("web", harness.FromClaim("data", "data")))
		n.Mounted("web")
		for _, args := range []string{
			"get pods", "get pods -o wide", "get pods -o json", "get volumes -o yaml", "get pvc", "get pv", "get drivers",
			"get mounts --pod web", "describe pod web", "explain pod web", "explain driver " + n.driver.name, "version",
		} {
			out := n.Do("", strings.Fields(args)...)
			if strings.TrimSpace(out) == "" {
				n.T.Errorf("csi-volmgr %s: says nothing", args)
			}
		}
		pods, err := n.API.Pods(n.T.Context())
		if err != nil || len(pods) != 1 || !pods[0].Ready || pods[0].Volumes[0].Claim != "default/data" {
			n.T.Errorf("pods: got %+v, %v", pods, err)
		}
		harness.Until(n.Node, "the driver to count its volume", n.API.WatchDrivers, func(all map[string]server.DriverStatus) bool {
			return all[n.driver.name].Volumes == 1
		})
	})
}

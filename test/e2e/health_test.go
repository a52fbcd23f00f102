package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/unixsocket"
)

// metrics returns the daemon's metrics for Prometheus.
func (n *node) metrics() string {
	n.T.Helper()
	c := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, n.Socket) },
	}}
	answer, err := c.Get("http://csi-volmgr/metrics")
	if err != nil {
		n.T.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.T.Fatal(err)
	}
	return string(text)
}

// The image of a claim's volume disappears while the daemon is down; no pod has the volume.
// The daemon asks the driver's Controller service as soon as it knows the driver's
// capabilities, although the node has nothing to do. The claim, the statistics and the
// metric show the driver's answer as the driver's.
//
// Items: N-84.
func TestAVolumeWhoseImageIsGoneIsSaid(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class(), claim("data", "64Mi", fileSystem, rwo))
	n.Eventually("the claim to be bound", func() bool {
		return n.Do("", "get", "pvc", "data", "-o", "jsonpath={.phase}") == "Bound"
	})
	n.daemon.Kill()
	images, err := filepath.Glob(filepath.Join(n.driver.stateDir(), "data", "*.img"))
	if err != nil || len(images) != 1 {
		t.Fatalf("images: %q, %v, want one", images, err)
	}
	aside := images[0] + ".aside"
	if err := os.Rename(images[0], aside); err != nil {
		t.Fatal(err)
	}
	abilities := n.driver.proxy.hold("GroupControllerGetCapabilities", false) // only the controller makes this call
	n.start()
	n.DriverUp(n.driver.name)
	n.reached(abilities)
	n.Do("", "get", "stats") // the daemon has checked which drivers to ask; only the capabilities change later
	close(abilities.on)
	want := "the Controller service of driver " + n.driver.name + " says: DATA_LOSS: ImageMissing"
	n.Eventually("the claim to say that its image is gone", func() bool {
		return strings.Contains(n.CLI("", "explain", "pvc", "data").Stdout, want)
	})
	if got := n.Do("", "get", "stats"); !strings.Contains(got, "ImageMissing") {
		t.Errorf("get stats says\n%s", got)
	}
	if got := n.metrics(); !strings.Contains(got, `kubelet_volume_stats_health_status_abnormal{namespace="default",persistentvolumeclaim="data"} 1`) {
		t.Errorf("/metrics lacks it:\n%s", got)
	}
	if err := os.Rename(aside, images[0]); err != nil {
		t.Fatal(err)
	}
	n.DeleteClaims("data")
	n.nothingLeft()
}

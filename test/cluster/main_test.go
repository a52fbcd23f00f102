//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

var (
	program  string // the path of csi-volmgr, built for these tests
	sidecars string // the directory of the sidecars' programs
	agent    string // the path of examples/agent
	control  *plane // shared by all tests; each uses its own names of nodes and claims
)

func TestMain(m *testing.M) {
	drivertest.Enter()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cluster-bin-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "csi-volmgr")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/csi-volmgr/csi-volmgr/cmd/csi-volmgr").CombinedOutput(); err != nil {
		return fail(fmt.Errorf("build csi-volmgr: %w\n%s", err, out))
	}
	binary := os.Getenv("KUBE_BINARY")
	if binary == "" {
		return fail(fmt.Errorf("KUBE_BINARY is not set: run make test-cluster, which builds it"))
	}
	if sidecars = os.Getenv("SIDECARS"); sidecars == "" {
		return fail(fmt.Errorf("SIDECARS is not set: run make test-cluster, which builds them"))
	}
	if agent = os.Getenv("AGENT_BINARY"); agent == "" {
		return fail(fmt.Errorf("AGENT_BINARY is not set: run make test-cluster, which builds it"))
	}
	if control, err = startPlane(context.Background(), binary); err != nil {
		return fail(err)
	}
	defer control.stop()
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// kind is a driver to test with.
type kind struct {
	label string
	// name is the driver's CSI name.
	name   string
	binary string
	args   []string // besides those with paths
	// params are the StorageClass's parameters.
	params map[string]string
	// attach: the driver has ControllerPublishVolume.
	attach bool
	// sizes: the driver's file systems have the requested size.
	sizes bool
	local bool
	// strict: this is the strict driver, which judges the calls that it gets.
	strict bool
	// alone: the proxy hides that the driver makes group snapshots.
	alone bool
}

// kinds returns the drivers to run the suite with.
func kinds() []kind {
	plain := kind{label: "plain", name: "driver.e2e.dev", binary: os.Getenv("DRIVER_BINARY")}
	switch {
	case plain.binary != "":
	case strict != "":
		plain.label, plain.binary, plain.strict = "strict", strict, true
	default:
		return []kind{{label: "local", name: "local.e2e.dev", binary: daemon, sizes: true, local: true}}
	}
	plain.args = append([]string{"-v=5"}, strings.Fields(os.Getenv("DRIVER_ARGS"))...)
	attach := plain
	attach.label, attach.attach = strings.TrimPrefix(plain.label+"-attach", "plain-"), true
	attach.args = append(slices.Clip(plain.args), "--enable-attach")
	return []kind{plain, attach}
}

// localOnly skips a test that is about the local driver or about no driver, if the suite
// runs with another driver.
func localOnly(t *testing.T) {
	t.Helper()
	if k := kinds()[0]; !k.local {
		t.Skipf("not about driver %s: run with the local driver", k.label)
	}
}

// command returns the driver's command. Processes that the driver starts are killed with
// it.
func (k kind) command(socket, stateDir string) *exec.Cmd {
	cmd := exec.Command(k.binary, append([]string{
		"--drivername=" + k.name, "--endpoint=unix://" + socket, "--nodeid=" + harness.Name, "--statedir=" + stateDir,
	}, k.args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// eachKind runs a test with each driver, on its own node.
func eachKind(t *testing.T, test func(n *node)) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.label, func(t *testing.T) {
			t.Parallel()
			test(newNode(t, k))
		})
	}
}

// driver is a running driver on a node, behind a proxy.
type driver struct {
	kind
	n     *node
	proc  *harness.Process
	proxy *proxy
}

// newDriver starts a driver and registers it.
func newDriver(n *node, k kind) *driver {
	n.T.Helper()
	d := &driver{kind: k, n: n}
	for _, dir := range []string{d.stateDir(), n.registry(), filepath.Join(n.Root, "plugins", k.name), n.Path("own-registry")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.T.Fatal(err)
		}
	}
	endpoint := filepath.Join(n.Root, "plugins", k.name, "csi.sock")
	d.proxy = newProxy(n.T, endpoint, d.socket(), k.alone)
	d.start()
	if registrar := os.Getenv("REGISTRAR_BINARY"); registrar != "" {
		start(n.T, n.Dir, registrar, "--csi-address="+endpoint, "--kubelet-registration-path="+endpoint,
			"--plugin-registration-path="+n.registry(), "--timeout=10s")
	} else {
		register(n.T, n.registry(), k.name, endpoint)
	}
	return d
}

func (d *driver) stateDir() string { return d.n.Path("driver-state") }
func (d *driver) socket() string   { return d.n.Path("driver.sock") }

// start starts the driver's process, for the first time or after a kill, and waits until it
// answers.
func (d *driver) start() {
	d.n.T.Helper()
	if d.local {
		d.proc = start(d.n.T, d.n.Dir, d.binary, "local-driver", "--name", d.name, "--node-id", harness.Name,
			"--root-dir", d.n.Root, "--state-dir", d.stateDir(), "--endpoint", d.socket(),
			"--registration-dir", d.n.Path("own-registry"), "--log-level", "debug")
	} else {
		d.proc = harness.Start(d.n.T, d.n.Path(filepath.Base(d.binary)+".log"), d.command(d.socket(), d.stateDir()))
	}
	d.proxy.ready(d.n.T, d.proc)
}

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kind is a driver to be tested with.
type kind struct {
	label string
	// name is its CSI name.
	name   string
	binary string
	args   []string // besides those that say where
	// params are the StorageClass's.
	params map[string]string
	// attach: it has ControllerPublishVolume.
	attach bool
	// sizes: its file systems are as large as was asked for.
	sizes bool
	local bool
}

// kinds are the drivers to run the suite with.
func kinds() []kind {
	binary := os.Getenv("DRIVER_BINARY")
	if binary == "" {
		return []kind{{label: "local", name: "local.e2e.dev", binary: daemon, sizes: true, local: true}}
	}
	args := strings.Fields(os.Getenv("DRIVER_ARGS"))
	return []kind{
		{label: "plain", name: "driver.e2e.dev", binary: binary, args: args},
		{label: "attach", name: "driver.e2e.dev", binary: binary, args: append(slices.Clip(args), "--enable-attach"), attach: true},
	}
}

// eachKind runs a test with every driver, each on a node of its own.
func eachKind(t *testing.T, test func(n *node)) {
	t.Parallel()
	for _, k := range kinds() {
		t.Run(k.label, func(t *testing.T) {
			t.Parallel()
			test(newNode(t, k))
		})
	}
}

// driver is a driver that runs on a node, behind a proxy.
type driver struct {
	kind
	n     *node
	proc  *process
	proxy *proxy
}

// newDriver starts a driver and registers it.
func newDriver(n *node, k kind) *driver {
	n.t.Helper()
	d := &driver{kind: k, n: n}
	for _, dir := range []string{d.stateDir(), n.registry(), filepath.Join(n.root, "plugins", k.name), n.path("own-registry")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	d.start()
	endpoint := filepath.Join(n.root, "plugins", k.name, "csi.sock")
	d.proxy = newProxy(n.t, endpoint, d.socket())
	d.proxy.ready(n.t)
	if registrar := os.Getenv("REGISTRAR_BINARY"); registrar != "" {
		start(n.t, n.dir, registrar, "--csi-address="+endpoint, "--kubelet-registration-path="+endpoint,
			"--plugin-registration-path="+n.registry(), "--timeout=10s")
	} else {
		register(n.t, n.registry(), k.name, endpoint)
	}
	return d
}

func (d *driver) stateDir() string { return d.n.path("driver-state") }
func (d *driver) socket() string   { return d.n.path("driver.sock") }

// start starts the driver's process.
func (d *driver) start() {
	d.n.t.Helper()
	if d.local {
		d.proc = start(d.n.t, d.n.dir, d.binary, "local-driver", "--name", d.name, "--node-id", nodeName,
			"--root-dir", d.n.root, "--state-dir", d.stateDir(), "--endpoint", d.socket(),
			"--registration-dir", d.n.path("own-registry"), "--log-level", "debug")
		return
	}
	d.proc = start(d.n.t, d.n.dir, d.binary, append([]string{
		"--drivername=" + d.name, "--endpoint=unix://" + d.socket(),
		"--nodeid=" + nodeName, "--statedir=" + d.stateDir(), "-v=5",
	}, d.args...)...)
}

// restart starts the driver again after it was killed, and waits until it answers.
func (d *driver) restart() {
	d.n.t.Helper()
	d.start()
	d.proxy.ready(d.n.t)
}

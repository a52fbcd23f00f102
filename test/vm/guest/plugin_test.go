//go:build vm

package guest

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
)

const (
	pluginUnit   = "csi-volmgr-plugin.socket"
	engineUnit   = "docker.service"
	pluginSocket = "/run/docker/plugins/csi.sock"
)

// One command switches the volume plugin on. Its socket exists before a container
// engine starts. A request while the daemon is away waits for the daemon.
func TestPluginIsThereBeforeTheEngines(t *testing.T) {
	n := newSystemNode(t)
	if out, err := n.try("systemctl", "start", pluginUnit); err == nil || !strings.Contains(out, "failed") {
		t.Errorf("the socket is started below a daemon that runs, which docs/docker.md says is refused: %s", out)
	}
	sh(t, "sh", "-c", "systemctl enable "+pluginUnit+" && systemctl restart csi-volmgr")
	t.Cleanup(func() {
		for _, args := range [][]string{{"disable", pluginUnit}, {"stop", pluginUnit, engineUnit, daemonUnit}} {
			if out, err := n.try("systemctl", args...); err != nil {
				t.Errorf("systemctl %q: %v: %s", args, err, out)
			}
		}
	})
	if said := activate(t); !strings.Contains(said, "VolumeDriver") {
		t.Errorf("the plugin says %q", said)
	}
	if st, err := os.Stat(pluginSocket); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v: want it to be root's alone", st, err)
	}

	sh(t, "systemctl", "stop", daemonUnit)
	if said := activate(t); !strings.Contains(said, "VolumeDriver") {
		t.Errorf("while the daemon was away the plugin says %q", said)
	}
	n.want(daemonUnit, "ActiveState", "active")

	// The same if an operator starts the engine alone.
	sh(t, "systemctl", "stop", pluginUnit, daemonUnit)
	sh(t, "systemctl", "start", engineUnit)
	n.want(engineUnit, "Result", "success") // its command looks for the socket
	if socket, engine := n.time(pluginUnit, "ActiveEnterTimestamp"), n.time(engineUnit, "ExecMainStartTimestamp"); engine.Before(socket) {
		t.Errorf("the engine started at %v, before the socket was there at %v", engine, socket)
	}
}

// activate sends an engine's first request.
func activate(t *testing.T) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", pluginSocket)
		},
	}}
	answer, err := client.Post("http://csi/Plugin.Activate", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fstab is a line as in docs/fstab.md.
const fstab = "default/logs /srv/data csi class=strict,size=1Mi,_netdev,nofail," +
	"x-systemd.requires=csi-volmgr-drain.service,x-systemd.mount-timeout=5min 0 0\n"

// systemd makes a mount unit from a line of fstab. It mounts the volume after the
// daemon has started, and the mount survives a restart of the daemon. When the
// machine stops, systemd unmounts it before the node is drained, and the volume
// goes.
func TestLineOfFstab(t *testing.T) {
	n := newSystemNode(t)
	n.apply()
	sh(t, "csi-volmgr", "delete", "pod", "web")
	write(t, "/etc/fstab", fstab)
	mkdir(t, "/srv/data")
	sh(t, "systemctl", "daemon-reload")
	const unit = "srv-data.mount"
	sh(t, "systemctl", "start", driverUnit, unit)
	if after := n.show(unit, "After"); !strings.Contains(after, drainUnit) {
		t.Errorf("%s is after %s, want %s", unit, after, drainUnit)
	}
	write(t, "/srv/data/greeting", "hello")
	before := mountOf(t, "/srv/data")
	sh(t, "systemctl", "restart", daemonUnit)
	if after := mountOf(t, "/srv/data"); before == "" || after != before {
		t.Errorf("at /srv/data was mounted %q, and after a restart of the daemon %q", before, after)
	}

	sh(t, "systemctl", "stop", drainUnit)
	n.want(unit, "ActiveState", "inactive")
	if table := n.table(); len(table) > 0 {
		t.Errorf("still mounted: %q", table)
	}
	if unmounted, drains := n.logged("Unmounted", unit), n.logged("Stopping", drainUnit); drains.Before(unmounted) {
		t.Errorf("the node was to be emptied at %v, before the directory was unmounted at %v", drains, unmounted)
	}
	sh(t, "csi-volmgr", "undrain") // the next boot does so by itself
	sh(t, "systemctl", "start", unit)
	n.want(drainUnit, "ActiveState", "active")
	if got := read(t, "/srv/data/greeting"); got != "hello" {
		t.Errorf("mounted again the file has %q", got)
	}
	sh(t, "systemctl", "stop", unit)
	await(t, "the volume to go", func() bool { return len(n.table()) == 0 })
	write(t, "/etc/fstab", "")
	sh(t, "systemctl", "daemon-reload")
	sh(t, "systemctl", "stop", driverUnit)
	n.verdict()
}

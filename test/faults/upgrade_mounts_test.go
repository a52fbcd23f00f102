package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// command runs a program of the host, and returns what it prints.
func (n *node) command(args ...string) string {
	n.T.Helper()
	out, err := exec.CommandContext(n.T.Context(), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		n.T.Fatalf("%q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// diskOf makes an ext4 on a loop device, whose superblock asks for errors, and returns the device.
func (n *node) diskOf(name, errors string) (device string) {
	n.T.Helper()
	image := n.Path(name + ".img")
	n.write(image, "")
	must(n.T, os.Truncate(image, 32<<20))
	n.command("mkfs.ext4", "-q", "-e", errors, image)
	return n.command("losetup", "--find", "--show", image)
}

// localDisk returns a PersistentVolume of a device, and its claim.
func localDisk(name, device, options string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 32Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  mountOptions: [%[3]s]
  claimRef: {namespace: default, name: %[1]s}
  local: {path: %[2]s, fsType: ext4}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [%[4]s]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec: {storageClassName: "", volumeName: %[1]s, accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}`,
		name, device, options, harness.Name)
}

// A pod that has a hostPath with HostToContainer, a disk that asks for errors=continue and one that asks for nothing are
// mounted by an older program, stay as they are in the newer one and back, and are removed by either. What a person mounts
// below the hostPath reaches the container. What the newer program mounts turns read-only at an error unless it asks for
// continue, and stays so in the older one.
func TestUpgradeAndBackWithSlavesAndDisks(t *testing.T) {
	if before == "" {
		t.Skip("UPGRADE_FROM=revision, the release before this one: make upgrade")
	}
	t.Parallel()
	n := newPlace(t)
	allowed := n.Path("allowed") // itself it would be given by its path
	srv := filepath.Join(allowed, "srv")
	must(t, os.MkdirAll(srv, 0o755))
	must(t, unix.Mount(srv, srv, "", unix.MS_BIND, ""))
	must(t, unix.Mount("", srv, "", unix.MS_SHARED, ""))
	must(t, os.Mkdir(filepath.Join(srv, "sub"), 0o755))
	n.write(filepath.Join(srv, "f"), "the host's")
	disks := map[string]string{"goes-on": n.diskOf("goes-on", "remount-ro"), "plain": n.diskOf("plain", "continue")}
	n.flags = []string{"--host-path-allow", allowed, "--host-path-allow", disks["goes-on"], "--host-path-allow", disks["plain"]}
	n.program, n.StorageID = before, ""
	n.begin(csistrict.Script{})
	slave := func(pod string) string {
		return strings.Replace(hostPod(pod, srv), "readOnly: false}", "mountPropagation: HostToContainer}", 1)
	}
	n.Apply(localDisk("goes-on", disks["goes-on"], "errors=continue"), localDisk("plain", disks["plain"], ""), slave("web"), slave("second"),
		harness.Pod("goes-on", fromClaim("goes-on")), harness.Pod("plain", fromClaim("plain")))
	errorsOf := map[string]string{"goes-on": "errors=continue", "plain": ""}
	right := func(hosts ...string) {
		t.Helper()
		for _, pod := range hosts {
			n.verified(pod)
			n.slaves(pod, srv)
		}
		for pod, want := range errorsOf {
			n.verified(pod)
			at := n.HostPath(pod, "data")
			got := ""
			for option := range strings.SplitSeq(n.command("findmnt", "-n", "-o", "FS-OPTIONS", "--mountpoint", at), ",") {
				if strings.HasPrefix(option, "errors=") {
					got = option
				}
			}
			if got != want {
				t.Errorf("the disk of pod %s has %q, want %q", pod, got, want)
			}
			n.write(filepath.Join(at, "f"), pod)
			n.wantFile(filepath.Join(at, "f"), pod)
		}
	}
	disksAt := func() (table []string) {
		for _, line := range n.table() {
			if strings.Contains(line, "local-volume") {
				table = append(table, line)
			}
		}
		return table
	}
	replace := func(by string) {
		t.Helper()
		table := disksAt()
		if len(table) < 2 {
			t.Fatalf("the disks are not mounted: %q", n.table())
		}
		n.daemon.Ask()
		n.program = by
		n.start()
		n.DriverUp(driverName)
		right("web", "second")
		if after := disksAt(); strings.Join(after, "\n") != strings.Join(table, "\n") {
			t.Errorf("the disks' mounts %q became %q", table, after)
		}
	}
	n.Mounted("web", "second", "goes-on", "plain")
	right("web", "second")
	replace("")
	n.DeletePods("plain", "goes-on")
	n.Apply(harness.Pod("goes-on", fromClaim("goes-on")), harness.Pod("plain", fromClaim("plain")))
	n.Mounted("plain", "goes-on")
	errorsOf["plain"] = "errors=remount-ro"
	right("web", "second")
	replace(before)
	n.DeletePods("second", "goes-on")
	n.Apply(slave("second"), harness.Pod("goes-on", fromClaim("goes-on")))
	n.Mounted("second", "goes-on")
	replace("")
	n.DeletePods("web", "second", "goes-on", "plain")
	for name, device := range disks {
		n.Do("", "delete", "pvc", name)
		n.command("losetup", "--detach", device)
	}
	must(t, unix.Unmount(srv, 0))
	n.verdict()
}

// slaves checks that a container of the pod sees the directory, and what a person mounts below it.
func (n *node) slaves(pod, dir string) {
	n.T.Helper()
	of := []string{"get", "mounts", "--pod", pod, "--container", "main", "-o"}
	if got := n.Do("", append(of, "jsonpath={.items[0].propagation}")...); got != "rslave" {
		n.T.Errorf("pod %s has propagation %q", pod, got)
	}
	at := n.Do("", append(of, "jsonpath={.items[0].hostPath}")...)
	n.wantFile(filepath.Join(at, "f"), "the host's")
	must(n.T, unix.Mount("x", filepath.Join(dir, "sub"), "tmpfs", 0, ""))
	n.write(filepath.Join(dir, "sub", "f"), "mounted")
	n.wantFile(filepath.Join(at, "sub", "f"), "mounted")
	n.Eventually("the file system to have no user", func() bool { // a child that another test forks has its files until exec
		err := unix.Unmount(filepath.Join(dir, "sub"), 0)
		if err != unix.EBUSY {
			must(n.T, err)
		}
		return err == nil
	})
	if _, err := os.Stat(filepath.Join(at, "sub", "f")); !os.IsNotExist(err) {
		n.T.Errorf("pod %s has what a person unmounted: %v", pod, err)
	}
}

//go:build vm

package guest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// eachKind has a volume of each kind that this machine can serve. cephfs and glusterfs want
// servers that it has not, and fc wants no program that iscsi does not want.
const eachKind = `apiVersion: v1
kind: PersistentVolume
metadata: {name: device}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 64Mi}
  volumeMode: Filesystem
  local: {path: DEVICE, fsType: ext4}
  claimRef: {namespace: default, name: device}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: locked}
spec:
  accessModes: [ReadWriteMany]
  capacity: {storage: 64Mi}
  mountOptions: [vers=3]
  nfs: {server: 127.0.0.1, path: ` + export + `}
  claimRef: {namespace: default, name: locked}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: device, namespace: default}
spec: {storageClassName: "", volumeName: device, accessModes: [ReadWriteOnce], resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: locked, namespace: default}
spec: {storageClassName: "", volumeName: locked, accessModes: [ReadWriteMany], resources: {requests: {storage: 64Mi}}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: embedded}
provisioner: local.csi-volmgr.dev
allowVolumeExpansion: true
parameters: {csi.storage.k8s.io/fstype: ext4}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: made, namespace: default}
spec: {storageClassName: embedded, accessModes: [ReadWriteOnce], resources: {requests: {storage: SIZE}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words, namespace: default}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: words, namespace: default}
stringData: {b: "2"}
---
apiVersion: v1
kind: Pod
metadata: {name: each, namespace: default}
spec:
  securityContext: {fsGroup: 4711}
  containers:
    - name: main
      image: main
      volumeMounts:
        - {name: nfs, mountPath: /nfs}
        - {name: locked, mountPath: /locked}
        - {name: iscsi, mountPath: /iscsi}
        - {name: device, mountPath: /device}
        - {name: made, mountPath: /made, subPath: below}
        - {name: host, mountPath: /host, mountPropagation: HostToContainer}
        - {name: disk, mountPath: /disk}
        - {name: memory, mountPath: /memory}
        - {name: config, mountPath: /config}
        - {name: secret, mountPath: /secret}
        - {name: all, mountPath: /all}
  volumes:
    - {name: nfs, nfs: {server: 127.0.0.1, path: /}}
    - {name: locked, persistentVolumeClaim: {claimName: locked}}
    - {name: iscsi, iscsi: {targetPortal: 127.0.0.1, iqn: ` + hardenedTarget + `, lun: 0, fsType: xfs}}
    - {name: device, persistentVolumeClaim: {claimName: device}}
    - {name: made, persistentVolumeClaim: {claimName: made}}
    - {name: host, hostPath: {path: /srv/host, type: DirectoryOrCreate}}
    - {name: disk, emptyDir: {}}
    - {name: memory, emptyDir: {medium: Memory}}
    - {name: config, configMap: {name: words}}
    - {name: secret, secret: {secretName: words}}
    - {name: all, projected: {sources: [{configMap: {name: words}}, {secret: {name: words}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: mapped, namespace: default}
spec:
  hostUsers: false
  containers:
    - {name: main, image: main, volumeMounts: [{name: made, mountPath: /made}]}
  volumes:
    - {name: made, persistentVolumeClaim: {claimName: made}}
`

const hardenedTarget = "iqn.2024-01.test.csi-volmgr:hardened"

// The daemon's unit restricts it as it is shipped, and the daemon and the programs that it runs
// (mount.nfs, rpc.statd, iscsiadm, mkfs, resize2fs) serve each kind of volume under it, map ids and
// see what holds a volume in another mount namespace.
func TestTheDaemonServesEachKindUnderItsUnit(t *testing.T) {
	serveNFS(t)
	serveISCSI(t, hardenedTarget, false, backstore(t, "hardened", 400)) // mkfs.xfs needs 300 MiB
	sh(t, "modprobe", "xfs")
	sh(t, "truncate", "-s", "64M", "/device.img")
	device := strings.TrimSpace(sh(t, "/sbin/losetup", "--find", "--show", "/device.img"))
	n := newSystemNode(t)
	mkdir(t, "/srv")
	write(t, "/etc/csi-volmgr/config.yaml", "node-name: node-1\nlocal-driver: true\nhost-path-allow: [/srv, /dev]\n")
	sh(t, "systemctl", "restart", daemonUnit)
	wantRestricted(n)

	n.applyEach(device, "64Mi")
	for _, pod := range []string{"each", "mapped"} {
		sh(t, "csi-volmgr", "wait", "pod", pod, "--for=verified", "--timeout="+patience.String())
	}
	mounts, err := n.api.Mounts(t.Context(), "default", "each")
	if err != nil || len(mounts) != 11 {
		t.Fatalf("mounts of pod each: %d of 11, %v", len(mounts), err)
	}
	paths := map[string]string{}
	for _, m := range mounts {
		paths[m.Name] = m.HostPath
	}
	for name, want := range map[string]string{
		"nfs": " - nfs4 ", "locked": " - nfs ", "iscsi": " - xfs ", "device": " - ext4 ", "made": " - ext4 ",
		"memory": " - tmpfs ", "secret": " - tmpfs ", "all": " - tmpfs ",
	} {
		line := mountOf(t, paths[name])
		if t.Logf("%s: %s", name, line); !strings.Contains(line, want) {
			t.Errorf("%s is mounted as %q, want %s", name, line, want)
		}
	}
	for _, name := range []string{"nfs", "locked", "iscsi", "device", "made", "host", "disk", "memory"} {
		write(t, filepath.Join(paths[name], "file-of-"+name), "x")
	}
	for _, name := range []string{"iscsi", "device", "made", "disk", "memory"} { // setgid of the pod's group
		if st, err := os.Stat(paths[name]); err != nil || st.Mode()&os.ModeSetgid == 0 {
			t.Errorf("%s is not of the pod's group: %v, %v", name, st.Mode(), err)
		}
	}
	if out := sh(t, "csi-volmgr", "get", "mounts", "--pod", "each", "--container", "main", "-o", "json"); strings.Count(out, `"hostPath"`) != 11 {
		t.Errorf("the container's mounts: %s", out)
	}
	if out := sh(t, "csi-volmgr", "get", "mounts", "--pod", "mapped", "--container", "main", "--runtime-user-namespaces", "-o", "json"); !strings.Contains(out, `"mapIDs": true`) {
		t.Errorf("the mounts of a pod of a user namespace: %s", out)
	}
	n.grows(device, paths["made"])
	n.seesItsHolder(paths["iscsi"])

	sh(t, "csi-volmgr", "delete", "pod", "each", "mapped")
	for _, pod := range []string{"each", "mapped"} {
		sh(t, "csi-volmgr", "wait", "pod", pod, "--for=unmounted", "--timeout="+patience.String())
	}
	await(t, "everything to be unmounted", func() bool { return len(n.table()) == 0 })
	await(t, "the session to end", func() bool { // the disk's unstage goes on after its mounts are gone
		all, err := n.api.Volumes(t.Context())
		return err == nil && !slices.ContainsFunc(all, func(v server.VolumeStatus) bool { return strings.HasPrefix(string(v.Volume.ID), "kubernetes.io/iscsi") })
	})
	wantNoISCSI(t, hardenedTarget)
}

func (n systemNode) applyEach(device, size string) {
	n.Helper()
	write(n.T, "/run/each.yaml", strings.NewReplacer("DEVICE", device, "SIZE", size).Replace(eachKind))
	sh(n.T, "csi-volmgr", "apply", "-f", "/run/each.yaml")
}

// wantRestricted fails the test unless the kernel holds the daemon to its unit.
func wantRestricted(n systemNode) {
	n.Helper()
	pid := n.show(daemonUnit, "MainPID")
	status := map[string]string{}
	for line := range strings.Lines(read(n.T, "/proc/"+pid+"/status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	if status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
		n.Errorf("the daemon has NoNewPrivs %q and Seccomp %q", status["NoNewPrivs"], status["Seccomp"])
	}
	bounding, err := strconv.ParseUint(status["CapBnd"], 16, 64)
	if err != nil {
		n.Fatal(err)
	}
	for name, number := range map[string]int{"CAP_SYS_BOOT": 22, "CAP_SYS_TIME": 25, "CAP_SYSLOG": 34, "CAP_BPF": 39} {
		if bounding&(1<<number) != 0 {
			n.Errorf("the daemon may have %s", name)
		}
	}
	for property, want := range map[string]string{"RestrictNamespaces": "mnt user", "MemoryDenyWriteExecute": "yes", "DropInPaths": unitDir + "csi-volmgr.service.d/watchdog.conf"} {
		n.want(daemonUnit, property, want)
	}
	if same, err := os.Readlink("/proc/" + pid + "/ns/mnt"); err != nil || same != must(os.Readlink("/proc/1/ns/mnt")) {
		n.Errorf("the daemon has a mount namespace of its own: %s, %v", same, err)
	}
}

func must(link string, err error) string {
	if err != nil {
		return err.Error()
	}
	return link
}

// grows asks for a larger claim: the embedded driver runs resize2fs in the daemon's unit.
func (n systemNode) grows(device, dir string) {
	n.Helper()
	before := bytesOf(n.T, dir)
	n.applyEach(device, "128Mi")
	await(n.T, "the claim to grow", func() bool { return bytesOf(n.T, dir) > before*3/2 })
}

// seesItsHolder has the daemon say which process holds a volume in another mount namespace.
func (n systemNode) seesItsHolder(dir string) {
	n.Helper()
	cmd := exec.CommandContext(n.Context(), "unshare", "--mount", "sh", "-c", `cd "$0" && echo ready && exec sleep 100000`, dir)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		n.Fatalf("the holder: %q, %v", line, err)
	}
	if out := sh(n.T, "csi-volmgr", "who", "pod", "each", "-o", "json"); !strings.Contains(out, `"pid": `+strconv.Itoa(cmd.Process.Pid)) {
		n.Errorf("process %d in %s is not among the holders: %s", cmd.Process.Pid, dir, out)
	}
}

package crash

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// handedUID is the UID of the pod whose volumes are handed over.
const handedUID = "6b1f6c1e-31a1-4f6a-9a53-2b7f0f7a9c01"

const handedClaims = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: local.csi-volmgr.dev}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: class}
provisioner: local.csi-volmgr.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: class, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {storageClassName: class, accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 16Mi}}}
`

const handedObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: %s}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {key: hello}
`

const handedPod = `apiVersion: v1
kind: Pod
metadata: {name: web, uid: ` + handedUID + `}
spec:
  containers:
  - name: main
    image: none
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: inline, mountPath: /inline}
    - {name: scratch, mountPath: /scratch}
    - {name: settings, mountPath: /settings}
    - {name: key, mountPath: /key}
    volumeDevices:
    - {name: disk, devicePath: /dev/disk}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: inline, csi: {driver: local.csi-volmgr.dev}}
  - {name: scratch, emptyDir: {}}
  - {name: settings, configMap: {name: settings}}
  - {name: key, secret: {secretName: key}}
`

const otherPod = `apiVersion: v1
kind: Pod
metadata: {name: more, uid: 6b1f6c1e-31a1-4f6a-9a53-2b7f0f7a9c02}
spec:
  containers: [{name: main, image: none, volumeMounts: [{name: scratch, mountPath: /scratch}]}]
  volumes: [{name: scratch, emptyDir: {}}]
`

// hands is the state of a node before it is handed to a kubelet.
type hands struct {
	ids     map[string]string // of mounts, by path
	records []state.VolumeID  // in the journal
}

// newHanded makes a node that takes its pods from a directory. It is handed to a kubelet,
// taken back, and in the end csi-volmgr is uninstalled.
func newHanded(t *testing.T) *node {
	n := newNode(t)
	n.apart, n.end = true, func() {} // the last phase checks what is left
	n.flags = []string{"--manifests", n.Path("manifests")}
	if err := errors.Join(os.Mkdir(n.Path("manifests"), 0o755), os.Mkdir(n.Path("aside"), 0o755)); err != nil {
		t.Fatal(err)
	}
	var h hands
	whole := append(n.places(), "--node-name", "node-1")
	n.phases = []phase{
		{name: "come", ready: n.come, early: true, step: n.came},
		{name: "other", step: n.other},
		{name: "release", ready: func() { n.before(&h) }, command: append([]string{"release", "--yes"}, whole...), step: func() error { return n.released(h) }},
		{name: "adopt", ready: n.asAKubelet, command: append(append([]string{"adopt", "--yes"}, whole...), n.flags...), step: func() error { return n.taken(h) }},
		{name: "taken", early: true, step: func() error { return n.goesOn(h) }},
		{name: "go", step: n.gone},
		{name: "claims", step: n.noClaims},
		{name: "leftovers", ready: n.leave, step: n.cleared},
		{name: "uninstall", ready: n.others, command: append([]string{"uninstall", "--yes"}, n.places()...), step: n.uninstalled},
	}
	return n
}

// put renames a manifest into the directory, unless the directory has it already.
func (n *node) put(name, text string) error {
	at := filepath.Join(n.Path("manifests"), name)
	if b, err := os.ReadFile(at); err == nil && string(b) == text {
		return nil
	}
	aside := filepath.Join(n.Path("manifests"), "."+name)
	return errors.Join(os.WriteFile(aside, []byte(text), 0o600), os.Rename(aside, at))
}

// come mounts a tmpfs for the manifests and writes them into it.
func (n *node) come() {
	err := unix.Mount("manifests", n.Path("manifests"), "tmpfs", 0, "")
	if err = errors.Join(err, n.put("objects.yaml", fmt.Sprintf(handedObjects, "hello")), n.put("pod.yaml", handedPod)); err != nil {
		n.T.Fatal(err)
	}
}

func (n *node) came() error {
	if _, err := n.API.Apply(n.ctx(), server.Manifest{Name: "-", Data: []byte(handedClaims)}); err != nil {
		return err
	}
	if err := n.mounted("web", 6); err != nil {
		return err
	}
	return errors.Join(n.content("settings", "greeting", "hello"), n.content("key", "key", "hello"), n.writes("data", "inline", "scratch"))
}

// other changes one manifest and adds another.
func (n *node) other() error {
	if err := errors.Join(n.put("objects.yaml", fmt.Sprintf(handedObjects, "goodbye")), n.put("other.yaml", otherPod)); err != nil {
		return err
	}
	return n.othered()
}

func (n *node) othered() error {
	if err := errors.Join(n.mounted("web", 6), n.mounted("more", 1)); err != nil {
		return err
	}
	return errors.Join(n.content("settings", "greeting", "goodbye"), n.content("key", "key", "hello"), n.writes("data", "inline", "scratch"))
}

// before notes the mounts and records before the node is handed over.
func (n *node) before(h *hands) {
	h.ids, h.records = n.mountIDs(), n.recorded()
	if len(h.records) != 7 {
		n.T.Errorf("there are %d records: %v", len(h.records), h.records)
	}
}

// mountIDs returns the ids of mounts by path, without those that only a kubelet makes.
func (n *node) mountIDs() map[string]string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.T.Fatal(err)
	}
	ids := map[string]string{}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[4], n.Path("root")+"/") && !strings.Contains(f[4], "/dev/") {
			ids[f[4]] = f[0]
		}
	}
	return ids
}

// recorded returns the volumes in the journal. No daemon may run.
func (n *node) recorded() []state.VolumeID {
	journal, err := journal.OpenBolt(n.Path("state/state.db"))
	if err != nil {
		n.T.Fatal(err)
	}
	defer journal.Close()
	loaded, err := journal.Load(n.T.Context())
	if err != nil || len(loaded.Quarantined) > 0 {
		n.T.Fatalf("journal: %v, %v", loaded.Quarantined, err)
	}
	return slices.Sorted(maps.Keys(loaded.Volumes))
}

// same checks that no mount was made or removed, and that the files are unchanged.
func (n *node) same(h hands) error {
	if ids := n.mountIDs(); !maps.Equal(ids, h.ids) {
		return fmt.Errorf("mounts are %v, were %v", ids, h.ids)
	}
	return n.kept()
}

func (n *node) released(h hands) error {
	if left := n.recorded(); len(left) > 0 {
		return fmt.Errorf("records are left: %v", left)
	}
	for pattern, want := range map[string]int{
		"pods/*/volumes/kubernetes.io~csi/*/vol_data.json":         2,
		"plugins/kubernetes.io/csi/*/*/vol_data.json":              1,
		"plugins/kubernetes.io/csi/volumeDevices/*/data/*.json":    1,
		"pods/*/plugins/kubernetes.io~empty-dir/wrapped_key/ready": 1,
	} {
		if found, err := filepath.Glob(filepath.Join(n.Path("root"), pattern)); err != nil || len(found) != want {
			return fmt.Errorf("%s: found %q, %v, want %d", pattern, found, err, want)
		}
	}
	return n.same(h)
}

// asAKubelet adds two things that a kubelet makes and csi-volmgr does not: a loop device
// that keeps a raw block volume open, and a staging directory in which the driver mounted
// nothing.
func (n *node) asAKubelet() {
	published, err := filepath.Glob(n.Path("root/plugins/kubernetes.io/csi/volumeDevices/publish/*/" + handedUID))
	if err != nil || len(published) != 1 {
		n.T.Fatalf("published: %q, %v", published, err)
	}
	at := n.Path("root/plugins/kubernetes.io/csi/volumeDevices/" + filepath.Base(filepath.Dir(published[0])) + "/dev/" + handedUID)
	stage := n.bare()
	err = errors.Join(
		os.MkdirAll(filepath.Dir(at), 0o750), os.WriteFile(at, nil, 0o600), unix.Mount(published[0], at, "", unix.MS_BIND, ""), loop(at),
		os.MkdirAll(stage+"/globalmount", 0o750),
		os.WriteFile(stage+"/vol_data.json", []byte(`{"driverName":"local.csi-volmgr.dev","volumeHandle":"none"}`), 0o600),
	)
	if err != nil {
		n.T.Fatal(err)
	}
}

// bare returns the path where a kubelet would have staged a volume with the handle none.
func (n *node) bare() string {
	return n.Path(fmt.Sprintf(csiDirs+"local.csi-volmgr.dev/%x", sha256.Sum256([]byte("none"))))
}

// loop attaches a loop device to the file or device at path, as losetup does.
func loop(path string) error {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close()
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer backing.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(backing.Fd()))
		f.Close()
		if !errors.Is(err, unix.EBUSY) { // another process took it
			return err
		}
	}
}

// taken checks that there is a record of every volume, including the one that the driver
// mounted nothing for.
func (n *node) taken(h hands) error {
	want := slices.Sorted(slices.Values(append(slices.Clone(h.records), "local.csi-volmgr.dev^none")))
	if got := n.recorded(); !slices.Equal(got, want) {
		return fmt.Errorf("records are %v, want %v", got, want)
	}
	return n.same(h)
}

// goesOn checks that the daemon has all volumes as before, and has removed the one that no
// pod wants.
func (n *node) goesOn(h hands) error {
	if err := n.othered(); err != nil {
		return err
	}
	if _, err := os.Lstat(n.bare()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the staging directory of nothing is there: %v", err)
	}
	return n.same(h)
}

// gone removes the pods' manifests.
func (n *node) gone() error {
	for _, name := range []string{"pod.yaml", "other.yaml", "objects.yaml"} {
		if err := os.Remove(filepath.Join(n.Path("manifests"), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return n.noPods()
}

// noClaims deletes the claims and their volumes.
func (n *node) noClaims() error {
	for _, name := range []string{"data", "disk"} {
		if _, err := n.API.DeleteClaim(n.ctx(), server.ClaimDeletion{Namespace: "default", Name: name}); err != nil && !errors.Is(err, server.ErrNotFound) {
			return err
		}
	}
	claims, err := n.API.Claims(n.ctx())
	if err != nil {
		return err
	}
	images, err := filepath.Glob(n.Path("state/local-driver/*/*"))
	if err != nil || len(claims)+len(images) > 0 {
		return fmt.Errorf("left: %+v, %q, %v", claims, images, err)
	}
	return nil
}

const (
	csiDirs  = "root/plugins/kubernetes.io/csi/"
	precious = "root/pods/kept/volumes/kubernetes.io~empty-dir/scratch/precious"
)

// leave makes leftovers below the root: empty directories, and one directory with a file.
func (n *node) leave() {
	for _, dir := range []string{
		"root/pods/empty/volumes/kubernetes.io~csi/pv/mount", "root/pods/empty/plugins/kubernetes.io~empty-dir/wrapped_key",
		csiDirs + "gone.example/hash/globalmount", csiDirs + "volumeDevices/pv/dev", csiDirs + "volumeDevices/staging/pv", filepath.Dir(precious),
	} {
		if err := os.MkdirAll(n.Path(dir), 0o750); err != nil {
			n.T.Fatal(err)
		}
	}
	err := os.WriteFile(n.Path("root/pods/empty/plugins/kubernetes.io~empty-dir/wrapped_key/ready"), nil, 0o600)
	if err = errors.Join(err, os.WriteFile(n.Path(precious), []byte("data"), 0o600)); err != nil {
		n.T.Fatal(err)
	}
}

// cleared checks that only the file is left of those.
func (n *node) cleared() error {
	items, err := n.API.GC(n.ctx(), false)
	if err != nil {
		return err
	}
	for _, i := range items {
		if !i.Removed && !strings.HasPrefix(n.Path(precious), i.Path) {
			return fmt.Errorf("left: %+v", i)
		}
	}
	for _, dir := range []string{"root/pods/empty", csiDirs + "gone.example/hash", csiDirs + "volumeDevices/pv", csiDirs + "volumeDevices/staging/pv"} {
		if _, err := os.Lstat(n.Path(dir)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %v", dir, err)
		}
	}
	if b, err := os.ReadFile(n.Path(precious)); err != nil || string(b) != "data" {
		return fmt.Errorf("%s: %q, %v", precious, b, err)
	}
	return nil
}

// foreign are files of other programs in csi-volmgr's directories.
var foreign = []string{"root/plugins/other/csi.sock", "root/notes.txt", "state/notes.txt"}

// others makes these files.
func (n *node) others() {
	n.driver.Stop()
	if err := os.RemoveAll(n.Path("root/pods/kept")); err != nil {
		n.T.Fatal(err)
	}
	for _, name := range foreign {
		if err := errors.Join(os.MkdirAll(filepath.Dir(n.Path(name)), 0o755), os.WriteFile(n.Path(name), []byte("others'"), 0o600)); err != nil {
			n.T.Fatal(err)
		}
	}
}

// uninstalled checks that only these files and the audit log are left.
func (n *node) uninstalled() error {
	var left []string
	for _, top := range []string{"root", "state", "api.sock", "api.sock.lock", "revision.key"} {
		err := filepath.WalkDir(n.Path(top), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && !d.IsDir() {
				left = append(left, strings.TrimPrefix(path, n.Dir+"/"))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	want := append([]string{"state/audit.log"}, foreign...)
	if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(want))) {
		return fmt.Errorf("left: %q, want %q", left, want)
	}
	for _, name := range foreign {
		if b, err := os.ReadFile(n.Path(name)); err != nil || string(b) != "others'" {
			return fmt.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, dir := range []string{"root/pods", "root/plugins/kubernetes.io", "root/plugins_registry", "state/local-driver", "state/secrets"} {
		if _, err := os.Lstat(n.Path(dir)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %v", dir, err)
		}
	}
	return unix.Unmount(n.Path("manifests"), 0)
}

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// kubelet makes volumes as a kubelet does: the same calls, directories, files, mounts and
// links. Its code follows the kubelet's layout, not csi-volmgr's.
type kubelet struct {
	*node
	csi csi.NodeClient
	// mode is the access mode that the driver gets for ReadWriteOnce.
	mode csi.VolumeCapability_AccessMode_Mode
}

func newKubelet(n *node) *kubelet {
	k := &kubelet{node: n, csi: csi.NewNodeClient(n.driver.proxy.conn), mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER}
	can, err := k.csi.NodeGetCapabilities(n.T.Context(), &csi.NodeGetCapabilitiesRequest{})
	must(n.T, err)
	for _, c := range can.GetCapabilities() {
		if c.GetRpc().GetType() == csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER {
			k.mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		}
	}
	return k
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (k *kubelet) dir(rel string) string {
	k.T.Helper()
	path := filepath.Join(k.Root, rel)
	must(k.T, os.MkdirAll(path, 0o750))
	return path
}

func (k *kubelet) file(rel, content string) string {
	k.T.Helper()
	path := filepath.Join(k.dir(filepath.Dir(rel)), filepath.Base(rel))
	must(k.T, os.WriteFile(path, []byte(content), 0o644))
	return path
}

// notes writes keys and values into a vol_data.json.
func (k *kubelet) notes(dir string, pairs ...string) {
	k.T.Helper()
	values := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		values[pairs[i]] = pairs[i+1]
	}
	b, err := json.Marshal(values)
	must(k.T, err)
	k.file(dir+"/vol_data.json", string(b)+"\n")
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// makes makes a volume of 32 MiB with the driver.
func (k *kubelet) makes(name string, c *csi.VolumeCapability) *csi.Volume {
	k.T.Helper()
	r, err := csi.NewControllerClient(k.driver.proxy.conn).CreateVolume(k.T.Context(), &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: 32 << 20}, VolumeCapabilities: []*csi.VolumeCapability{c},
	})
	must(k.T, err)
	return r.GetVolume()
}

func (k *kubelet) mountable() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: k.mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
	}
}

func (k *kubelet) device() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: k.mode},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

// attachment returns the name of the volume's VolumeAttachment.
func (k *kubelet) attachment(handle string) string {
	return "csi-" + hash(handle+k.driver.name+harness.Name)
}

// fileSystem stages a volume at a directory of the kubelet's, and publishes it.
func (k *kubelet) fileSystem(v *csi.Volume, pv, uid, staged string) string {
	k.T.Helper()
	stage := k.dir(staged + "/globalmount")
	k.notes(staged, "driverName", k.driver.name, "volumeHandle", v.GetVolumeId())
	_, err := k.csi.NodeStageVolume(k.T.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), StagingTargetPath: stage, VolumeCapability: k.mountable(),
	})
	must(k.T, err)
	dir := "pods/" + uid + "/volumes/kubernetes.io~csi/" + pv
	k.notes(dir, "attachmentID", k.attachment(v.GetVolumeId()), "driverName", k.driver.name, "nodeName", harness.Name,
		"specVolID", pv, "volumeHandle", v.GetVolumeId(), "volumeLifecycleMode", "Persistent")
	target := filepath.Join(k.Root, dir, "mount")
	_, err = k.csi.NodePublishVolume(k.T.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), StagingTargetPath: stage, TargetPath: target, VolumeCapability: k.mountable(),
	})
	must(k.T, err)
	return target
}

// inline publishes an inline volume.
func (k *kubelet) inline(name, uid string) string {
	k.T.Helper()
	handle := "csi-" + hash(uid+name)
	dir := "pods/" + uid + "/volumes/kubernetes.io~csi/" + name
	k.notes(dir, "attachmentID", k.attachment(handle), "driverName", k.driver.name, "nodeName", harness.Name,
		"specVolID", name, "volumeHandle", handle, "volumeLifecycleMode", "Ephemeral")
	target := filepath.Join(k.Root, dir, "mount")
	_, err := k.csi.NodePublishVolume(k.T.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: handle, TargetPath: target, VolumeCapability: k.mountable(),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "csi.storage.k8s.io/pod.uid": uid, "size": "8Mi"},
	})
	must(k.T, err)
	return target
}

// block stages and publishes a raw block volume, bind-mounts the device once more, and
// keeps it open with a loop device.
func (k *kubelet) block(v *csi.Volume, pv, uid string) string {
	k.T.Helper()
	const top = "plugins/kubernetes.io/csi/volumeDevices"
	stage := k.dir(top + "/staging/" + pv)
	k.notes(top+"/"+pv+"/data", "attachmentID", k.attachment(v.GetVolumeId()), "driverName", k.driver.name, "nodeName", harness.Name,
		"specVolID", pv, "volumeHandle", v.GetVolumeId())
	_, err := k.csi.NodeStageVolume(k.T.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), StagingTargetPath: stage, VolumeCapability: k.device(),
	})
	must(k.T, err)
	target := filepath.Join(k.dir(top+"/publish/"+pv), uid)
	_, err = k.csi.NodePublishVolume(k.T.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), VolumeContext: v.GetVolumeContext(), StagingTargetPath: stage, TargetPath: target, VolumeCapability: k.device(),
	})
	must(k.T, err)
	kept := k.file(top+"/"+pv+"/dev/"+uid, "")
	must(k.T, unix.Mount(target, kept, "", unix.MS_BIND, ""))
	loop(k.T, kept)
	link := filepath.Join(k.dir("pods/"+uid+"/volumeDevices/kubernetes.io~csi"), pv)
	must(k.T, os.Symlink(target, link))
	return target
}

// loop attaches a loop device to the file or device at path, as losetup does. If the daemon
// has not detached it, the test's cleanup does.
func loop(t *testing.T, path string) {
	t.Helper()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	must(t, err)
	defer control.Close()
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer backing.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		must(t, err)
		f, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		must(t, err)
		err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_SET_FD, int(backing.Fd()))
		if err == nil {
			named := unix.LoopInfo64{}
			copy(named.File_name[:], filepath.Base(t.Name()))
			must(t, unix.IoctlLoopSetStatus64(int(f.Fd()), &named))
			t.Cleanup(func() { detachNamed(f.Name(), named) })
		}
		f.Close()
		if err != unix.EBUSY { // another process took it
			must(t, err)
			return
		}
	}
}

// detachNamed detaches a loop device if it still has this name. Another test may have taken
// the device meanwhile.
func detachNamed(device string, named unix.LoopInfo64) {
	f, err := os.Open(device)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := unix.IoctlLoopGetStatus64(int(f.Fd())); err == nil && info.File_name == named.File_name {
		unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
	}
}

// memory mounts a tmpfs as the directory of a pod's volume.
func (k *kubelet) memory(uid, plugin, name string) string {
	k.T.Helper()
	dir := k.dir("pods/" + uid + "/volumes/" + plugin + "/" + name)
	must(k.T, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	return dir
}

// ready writes the ready file of an emptyDir, or of the emptyDir that wraps a volume with
// files.
func (k *kubelet) ready(uid, name string) {
	k.file("pods/"+uid+"/plugins/kubernetes.io~empty-dir/"+name+"/ready", "")
}

// payload writes a file into a volume as the kubelet's atomic writer does.
func (k *kubelet) payload(dir, name, content string) {
	k.T.Helper()
	const version = "..2026_01_02_15_04_05.123456789"
	must(k.T, os.Mkdir(filepath.Join(dir, version), 0o755))
	must(k.T, os.WriteFile(filepath.Join(dir, version, name), []byte(content), 0o644))
	must(k.T, os.Symlink(version, filepath.Join(dir, "..data")))
	must(k.T, os.Symlink("..data/"+name, filepath.Join(dir, name)))
}

// part bind-mounts a directory of a volume as a container's subPath.
func (k *kubelet) part(uid, volume, target string) {
	k.T.Helper()
	sub := filepath.Join(target, "sub")
	must(k.T, os.Mkdir(sub, 0o755))
	at := k.dir("pods/" + uid + "/volume-subpaths/" + volume + "/main/0")
	must(k.T, unix.Mount(sub, at, "", unix.MS_BIND, ""))
}

// takeDown removes all CSI volumes as a kubelet without pods does after its restart. It
// needs all of the kubelet's files.
func (k *kubelet) takeDown() (unpublished, unstaged int) {
	k.T.Helper()
	read := func(path string) map[string]string {
		var values map[string]string
		b, err := os.ReadFile(path)
		must(k.T, err)
		must(k.T, json.Unmarshal(b, &values))
		must(k.T, os.Remove(path))
		return values
	}
	find := func(pattern string) []string {
		paths, err := filepath.Glob(filepath.Join(k.Root, pattern))
		must(k.T, err)
		return paths
	}
	unpublish := func(handle, target string) {
		_, err := k.csi.NodeUnpublishVolume(k.T.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: target})
		must(k.T, err)
		unpublished++
	}
	unstage := func(handle, stage string) {
		_, err := k.csi.NodeUnstageVolume(k.T.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: stage})
		must(k.T, err)
		unstaged++
	}
	for _, path := range find("pods/*/volumes/kubernetes.io~csi/*/vol_data.json") {
		v := read(path)
		if v["specVolID"] != filepath.Base(filepath.Dir(path)) || v["nodeName"] != harness.Name || v["attachmentID"] != k.attachment(v["volumeHandle"]) || v["volumeLifecycleMode"] == "" {
			k.T.Errorf("%s: %v", path, v)
		}
		unpublish(v["volumeHandle"], filepath.Join(filepath.Dir(path), "mount"))
	}
	const top = "plugins/kubernetes.io/csi"
	for _, path := range find(top + "/volumeDevices/*/data/vol_data.json") {
		v := read(path)
		for _, target := range find(top + "/volumeDevices/publish/" + v["specVolID"] + "/*") {
			unpublish(v["volumeHandle"], target)
		}
		unstage(v["volumeHandle"], filepath.Join(k.Root, top, "volumeDevices/staging", v["specVolID"]))
	}
	for _, path := range find(top + "/*/*/vol_data.json") {
		v := read(path)
		if v["driverName"] != k.driver.name {
			k.T.Errorf("%s: %v", path, v)
		}
		unstage(v["volumeHandle"], filepath.Join(filepath.Dir(path), "globalmount"))
	}
	return unpublished, unstaged
}

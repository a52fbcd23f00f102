package disk

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/tools/handover"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place is a root directory.
type place struct {
	*testing.T
	root   string
	kernel *mount.Kernel
}

func newPlace(t *testing.T) *place {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return &place{t, root, mount.New(root)}
}

func (p *place) dir(rel string) string {
	p.Helper()
	path := filepath.Join(p.root, rel)
	must(p.T, os.MkdirAll(path, 0o750))
	return path
}

func (p *place) file(rel, text string) string {
	p.Helper()
	path := filepath.Join(p.dir(filepath.Dir(rel)), filepath.Base(rel))
	must(p.T, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (p *place) mount(rel string) {
	p.Helper()
	path := p.dir(rel)
	must(p.T, unix.Mount("x", path, "tmpfs", 0, ""))
	p.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

func (p *place) keeper() Keeper {
	return Keeper{Layout: state.Layout{Root: p.root}, Kernel: p.kernel}
}

// tree lists the files and directories below the root.
func (p *place) tree() string {
	p.Helper()
	var all []string
	must(p.T, filepath.WalkDir(p.root, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(p.root, path); rel != "." {
			all = append(all, rel)
		}
		return err
	}))
	return strings.Join(all, " ")
}

func TestReadFindsWhatAKubeletLeaves(t *testing.T) {
	p := newPlace(t)
	const csi = "plugins/kubernetes.io/csi/"
	p.mount("pods/u/volumes/kubernetes.io~csi/pv-1/mount")
	p.file("pods/u/volumes/kubernetes.io~csi/pv-1/vol_data.json", `{"driverName":"d","volumeHandle":"h"}`)
	p.file("pods/u/volumes/kubernetes.io~csi/pv-2/vol_data.json", `{"driverName":`)
	p.file("pods/u/volumes/kubernetes.io~csi/pv-3/vol_data.json", strings.Repeat(" ", maxNotes+1))
	p.dir("pods/u/volumes/kubernetes.io~csi/pv-4/vol_data.json")
	p.dir("pods/u/volumes/kubernetes.io~csi/pv-5")
	p.file("pods/u/volumes/kubernetes.io~empty-dir/full/f", "x")
	p.dir("pods/u/volumes/kubernetes.io~empty-dir/none")
	p.mount("pods/u/volumes/kubernetes.io~secret/keys")
	p.dir("pods/u/volumeDevices/kubernetes.io~csi")
	must(t, os.Symlink("/dev/null", p.root+"/pods/u/volumeDevices/kubernetes.io~csi/pv-6"))
	p.mount(csi + "d/hash/globalmount")
	p.file(csi+"d/hash/vol_data.json", `{"driverName":"d","volumeHandle":"h"}`)
	p.dir(csi + "d/gone")
	p.dir(csi + "pv/pv-7/globalmount")
	p.file(csi+"volumeDevices/pv-6/data/vol_data.json", `{"specVolID":"pv-6"}`)
	p.dir(csi + "volumeDevices/staging/pv-6")
	p.file(csi+"volumeDevices/publish/pv-6/u", "")
	p.dir("elsewhere/volumes/kubernetes.io~csi/pv-9")
	must(t, os.Symlink(p.root+"/elsewhere", p.root+"/pods/linked"))

	d, err := Read(t.Context(), p.root, p.kernel)
	must(t, err)
	var got []string
	for _, v := range d.Volumes {
		got = append(got, fmt.Sprint(v.Pod, " ", v.Plugin, " ", v.Name, " notes:", v.Notes.Found, len(v.Notes.Values), v.Notes.Problem != "", " mounted:", v.Seen.Mounted, " files:", v.Files))
	}
	want := []string{
		"u kubernetes.io~csi pv-1 notes:true 2 false mounted:true files:false",
		"u kubernetes.io~csi pv-2 notes:true 0 true mounted:false files:false",
		"u kubernetes.io~csi pv-3 notes:true 0 true mounted:false files:false",
		"u kubernetes.io~csi pv-4 notes:true 0 true mounted:false files:false",
		"u kubernetes.io~csi pv-5 notes:false 0 false mounted:false files:false",
		"u kubernetes.io~empty-dir full notes:false 0 false mounted:false files:true",
		"u kubernetes.io~empty-dir none notes:false 0 false mounted:false files:false",
		"u kubernetes.io~secret keys notes:false 0 false mounted:true files:false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("volumes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(d.Devices) != 1 || d.Devices[0].Name != "pv-6" || d.Devices[0].Pod != "u" {
		t.Errorf("devices %+v", d.Devices)
	}
	if len(d.Staged) != 2 || !d.Staged[0].Seen.Mounted || d.Staged[0].Notes.Values["volumeHandle"] != "h" || d.Staged[1].Path != p.root+"/"+csi+"pv/pv-7/globalmount" || d.Staged[1].Seen.Mounted {
		t.Errorf("staged %+v", d.Staged)
	}
	if len(d.Blocks) != 1 || !d.Blocks[0].Stage.Exists || !d.Blocks[0].Published["u"].Exists || d.Blocks[0].Notes.Values["specVolID"] != "pv-6" {
		t.Errorf("blocks %+v", d.Blocks)
	}
	if len(d.Mounts) != 3 {
		t.Errorf("mounts %q", d.Mounts)
	}
}

func TestReadOfNothing(t *testing.T) {
	d, err := Read(t.Context(), newPlace(t).root, mount.New("/"))
	if err != nil || len(d.Volumes)+len(d.Staged)+len(d.Blocks) != 0 {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := Read(t.Context(), "/nonexistent", mount.New("/")); err == nil {
		t.Error("a root directory that is not there was read")
	}
}

// Read does not enter a directory of volumes that is itself a mount, since it cannot know
// the content.
func TestReadStopsAtAMountAboveVolumes(t *testing.T) {
	p := newPlace(t)
	p.mount("pods")
	if _, err := Read(t.Context(), p.root, p.kernel); err == nil || !strings.Contains(err.Error(), "pods") {
		t.Errorf("got %v", err)
	}
}

func TestWhatAKubeletKeepsGoesWithTheVolume(t *testing.T) {
	p := newPlace(t)
	layout := state.Layout{Root: p.root}
	mounts := func(target string) map[state.PodUID]state.Mount {
		return map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Target: target}}}
	}
	p.file("pods/u/volumes/kubernetes.io~csi/pv-1/vol_data.json", "{}")
	p.file("pods/u/plugins/kubernetes.io~empty-dir/wrapped_keys/ready", "")
	p.file("pods/u/plugins/kubernetes.io~empty-dir/cache/ready", "")
	p.file("plugins/kubernetes.io/csi/d/hash/vol_data.json", "{}")
	p.dir("plugins/kubernetes.io/csi/d/hash/globalmount")
	p.file("plugins/kubernetes.io/csi/d/none/vol_data.json", "{}")
	p.dir("plugins/kubernetes.io/csi/d/none/globalmount")
	p.file("plugins/kubernetes.io/csi/volumeDevices/pv-2/data/vol_data.json", "{}")
	p.file("plugins/kubernetes.io/csi/volumeDevices/pv-2/dev/u", "")
	for range 2 { // the second time there is nothing to do
		r := p.keeper()
		must(t, r.BeforeUnpublish(t.Context(), state.Volume{Spec: &state.Spec{Name: "pv-1", Mode: state.Filesystem}, Mounts: mounts(layout.Target(state.Filesystem, "u", "pv-1"))}, "u"))
		must(t, r.BeforeUnpublish(t.Context(), state.Volume{Spec: &state.Spec{Name: "keys", Builtin: true}, Mounts: mounts("")}, "u"))
		must(t, r.BeforeUnpublish(t.Context(), state.Volume{Spec: &state.Spec{Name: "pv-2", Mode: state.Block}, Mounts: mounts("")}, "u"))
		must(t, r.BeforeUnstage(t.Context(), state.Volume{Spec: &state.Spec{Mode: state.Filesystem, StagePath: p.root + "/plugins/kubernetes.io/csi/d/hash/globalmount"}}))
		must(t, r.Empty(t.Context(), p.root+"/plugins/kubernetes.io/csi/d/none/globalmount"))
	}
	want := "plugins plugins/kubernetes.io plugins/kubernetes.io/csi plugins/kubernetes.io/csi/d plugins/kubernetes.io/csi/d/hash plugins/kubernetes.io/csi/d/hash/globalmount plugins/kubernetes.io/csi/volumeDevices pods pods/u pods/u/plugins pods/u/plugins/kubernetes.io~empty-dir pods/u/plugins/kubernetes.io~empty-dir/cache pods/u/plugins/kubernetes.io~empty-dir/cache/ready pods/u/volumes pods/u/volumes/kubernetes.io~csi pods/u/volumes/kubernetes.io~csi/pv-1"
	if got := p.tree(); got != want {
		t.Errorf("left %s\nwant %s", got, want)
	}
}

// An interrupted removal is completed: whatever it had removed already, the empty
// directories above go too.
func TestARemovalThatWasCutOffIsTakenUp(t *testing.T) {
	p := newPlace(t)
	v := state.Volume{Spec: &state.Spec{Name: "keys", Builtin: true}, Mounts: map[state.PodUID]state.Mount{"u": {}}}
	const marks = "pods/u/plugins/kubernetes.io~empty-dir"
	for _, left := range []string{marks + "/wrapped_keys", marks, "pods/u/plugins", "pods/u"} {
		p.dir(left)
		must(t, p.keeper().BeforeUnpublish(t.Context(), v, "u"))
		if got := p.tree(); got != "pods pods/u" {
			t.Errorf("of %s is left %s", left, got)
		}
	}
}

func TestAStageThatIsNoneOfTheKubeletsEmptyOnesStays(t *testing.T) {
	p := newPlace(t)
	p.file("plugins/kubernetes.io/csi/d/full/globalmount/f", "data")
	p.file("plugins/kubernetes.io/csi/d/full/vol_data.json", "{}")
	p.mount("plugins/kubernetes.io/csi/d/used/globalmount")
	before := p.tree()
	for _, name := range []string{"full", "used"} {
		if err := p.keeper().Empty(t.Context(), p.root+"/plugins/kubernetes.io/csi/d/"+name+"/globalmount"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if got := p.tree(); got != before {
		t.Errorf("left %s, want %s", got, before)
	}
}

func TestFilesAreWrittenAsAKubeletDoes(t *testing.T) {
	p := newPlace(t)
	at := p.root + "/plugins/kubernetes.io/csi/d/hash/vol_data.json"
	p.file(".vol_data.json.new", "left by a crash")
	p.file("pods/u/volumes/kubernetes.io~csi/pv-1/vol_data.json", "cut off")
	files := []handover.File{
		{Path: at, Values: map[string]string{"volumeHandle": "h", "driverName": "d"}, Dir: p.root + "/plugins/kubernetes.io/csi/d/hash/globalmount"},
		{Path: p.root + "/pods/u/volumes/kubernetes.io~csi/pv-1/vol_data.json", Values: map[string]string{"specVolID": "pv-1"}},
		{Path: p.root + "/pods/u/plugins/kubernetes.io~empty-dir/wrapped_keys/ready"},
	}
	must(t, p.keeper().Write(t.Context(), files))
	info, err := os.Stat(at)
	must(t, err)
	must(t, p.keeper().Write(t.Context(), files))
	if again, err := os.Stat(at); err != nil || !os.SameFile(info, again) || again.Mode() != 0o644 {
		t.Errorf("a second time: %v, %v; it was written anew, or has another mode than 0644", again, err)
	}
	for path, want := range map[string]string{at: `{"driverName":"d","volumeHandle":"h"}` + "\n", files[1].Path: `{"specVolID":"pv-1"}` + "\n", files[2].Path: ""} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	if tree := p.tree(); !strings.Contains(tree, "hash/globalmount") || strings.Contains(tree, ".new") {
		t.Errorf("tree %s", tree)
	}
	for _, path := range []string{"/etc/vol_data.json", p.root + "/../x"} {
		if err := p.keeper().Write(t.Context(), []handover.File{{Path: path}}); err == nil {
			t.Errorf("%s was written", path)
		}
	}
}

func TestDirectoriesThatStandForVolumesGoIfEmpty(t *testing.T) {
	p := newPlace(t)
	none, full := p.dir("pods/u/none"), p.dir("pods/u/full")
	p.file("pods/u/full/f", "x")
	if err := p.keeper().RemoveDirs(t.Context(), []string{none, full, none}); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	if got := p.tree(); got != "pods pods/u pods/u/full pods/u/full/f" {
		t.Errorf("left %s", got)
	}
}

func TestLinksLeadNowhere(t *testing.T) {
	p := newPlace(t)
	outside := p.file("elsewhere/pv-1/vol_data.json", "{}")
	p.dir("pods/u/volumes")
	must(t, os.Symlink(p.root+"/elsewhere", p.root+"/pods/u/volumes/kubernetes.io~csi"))
	v := state.Volume{Spec: &state.Spec{Name: "pv-1", Mode: state.Filesystem}, Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Target: p.root + "/pods/u/volumes/kubernetes.io~csi/pv-1/mount"}}}}
	if err := p.keeper().BeforeUnpublish(t.Context(), v, "u"); err == nil {
		t.Error("no error")
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
	p.dir("elsewhere/pv-2") // has no notes: a directory out of reach does not count as gone either
	for _, dir := range []string{p.root + "/pods/u/volumes/kubernetes.io~csi/pv-2", t.TempDir()} {
		v.Mounts["u"] = state.Mount{MountSpec: state.MountSpec{Target: dir + "/mount"}}
		v.Spec.StagePath = dir + "/globalmount"
		if p.keeper().BeforeUnpublish(t.Context(), v, "u") == nil || p.keeper().BeforeUnstage(t.Context(), v) == nil {
			t.Errorf("%s: no error", dir)
		}
	}
}

// The path of the root itself may contain a link.
func TestNotesAreFoundBelowARootThatALinkLeadsTo(t *testing.T) {
	p := newPlace(t)
	notes := p.file("pods/u/volumes/kubernetes.io~csi/pv-1/vol_data.json", "{}")
	link := t.TempDir() + "/root"
	must(t, os.Symlink(p.root, link))
	v := state.Volume{Spec: &state.Spec{Mode: state.Filesystem}, Mounts: map[state.PodUID]state.Mount{"u": {MountSpec: state.MountSpec{Target: link + "/pods/u/volumes/kubernetes.io~csi/pv-1/mount"}}}}
	must(t, Keeper{Layout: state.Layout{Root: link}, Kernel: p.kernel}.BeforeUnpublish(t.Context(), v, "u"))
	if _, err := os.Lstat(notes); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the notes: %v, want that they are gone", err)
	}
}

func TestAKubeletThatRunsIsSeen(t *testing.T) {
	process := func(t *testing.T, name, cmdline string) Host {
		proc := t.TempDir()
		must(t, os.MkdirAll(proc+"/42", 0o755))
		must(t, os.WriteFile(proc+"/42/comm", []byte(name+"\n"), 0o600))
		must(t, os.WriteFile(proc+"/42/cmdline", []byte(cmdline), 0o600))
		return Host{Proc: proc, Healthz: "127.0.0.1:1"}
	}
	root := newPlace(t).root
	for _, tt := range []struct {
		name, root, want string
		host             Host
	}{
		{"another program", root, "", process(t, "kubectl", "kubectl\x00--root-dir="+root)},
		{"on another root", root, "", process(t, "kubelet", "/usr/bin/kubelet\x00--config=/x")},
		{"on this root", root, "process 42", process(t, "kubelet", "/usr/bin/kubelet\x00--root-dir="+root+"/")},
		{"on this root, said with a space", root, "process 42", process(t, "kubelet", "kubelet\x00--root-dir\x00"+root)},
		{"on its own root", defaultRoot, "process 42", process(t, "kubelet", "kubelet\x00-v=2")},
	} {
		if got, err := tt.host.Kubelet(tt.root); err != nil || (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	none := process(t, "init", "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	none.Healthz = l.Addr().String()
	if got, _ := none.Kubelet(defaultRoot); !strings.Contains(got, "a kubelet's health address") {
		t.Errorf("healthz: got %q", got)
	}
	if got, _ := none.Kubelet(root); got != "" {
		t.Errorf("healthz of a kubelet on another root: got %q", got)
	}
	short, err := os.MkdirTemp("", "kubelet-")
	must(t, err)
	defer os.RemoveAll(short)
	must(t, os.Mkdir(short+"/pod-resources", 0o755))
	s, err := net.Listen("unix", short+"/pod-resources/kubelet.sock")
	must(t, err)
	if got, _ := none.Kubelet(short); !strings.Contains(got, "pod-resources/kubelet.sock") {
		t.Errorf("socket: got %q", got)
	}
	s.Close()
	if got, _ := none.Kubelet(short); got != "" {
		t.Errorf("a socket without a server: got %q", got)
	}
}

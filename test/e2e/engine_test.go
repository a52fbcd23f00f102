package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

// anonymous is a name that Docker makes up for a volume without one.
const anonymous = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// The volume of docker run --rm -v /data, and of an image's VOLUME, is deleted with its data when Docker removes it. The
// default class makes it, since its user can give no option.
func TestAnAnonymousVolumeLeavesNothing(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(strings.Replace(n.driver.class(), "metadata: {name: class",
			`metadata: {annotations: {storageclass.kubernetes.io/is-default-class: "true"}, name: class`, 1))
		p := n.withPlugin()
		p.Do("Create", anonymous, nil)
		n.marked(p, anonymous, "of a container")
		p.Do("Remove", anonymous, nil)
		if got := n.driver.proxy.count("DeleteVolume"); got != 1 {
			n.T.Errorf("%d calls of DeleteVolume, want 1", got)
		}
		if left := n.kept(); len(left) > 0 {
			n.T.Errorf("kept: %q", left)
		}
		n.nothingLeft()
	})
}

// What Compose makes of mode: 0770 without quotes, a size without its unit and a size that the driver refuses are the answer
// of the create, and nothing is left; a mode in quotes is the directory's, and volume set makes a volume larger.
func TestWhatEnginesTypeIsAnswered(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class())
		p := n.withPlugin()
		refused := func(words string, opts map[string]string) {
			n.T.Helper()
			opts["class"] = "class"
			if _, err := p.Ask(n.T.Context(), "Create", "db", opts); err == nil || !strings.Contains(err.Error(), words) {
				n.T.Errorf("create %v: %v, want %q", opts, err, words)
			}
			if left := p.Do("List", "", nil).Volumes; len(left) > 0 {
				n.T.Errorf("create %v: left %v", opts, left)
			}
		}
		refused(`mode: "0770"`, map[string]string{"mode": "504"})
		refused("such as 10Gi", map[string]string{"size": "10"})
		if n.driver.kind.local {
			refused("OutOfRange", map[string]string{"size": "7Ei"})
		}
		p.Do("Create", "db", map[string]string{"class": "class", "size": "64Mi", "mode": "0770"})
		at := p.Do("Mount", "db", nil).Mountpoint
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil || st.Mode&0o7777 != 0o770 {
			n.T.Errorf("mode %o, %v", st.Mode&0o7777, err)
		}
		n.Do("", "volume", "set", "db", "size=96Mi", "mode=0700", "uid=7", "reclaim=Delete")
		if err := unix.Stat(at, &st); err != nil || st.Mode&0o7777 != 0o700 || st.Uid != 7 {
			n.T.Errorf("after volume set: mode %o, uid %d, %v", st.Mode&0o7777, st.Uid, err)
		}
		n.Eventually("the volume to grow", func() bool {
			return n.Do("", "get", "pvc", "db", "-o", "jsonpath={.capacityBytes}") == "100663296"
		})
		p.Do("Unmount", "db", nil)
		n.restarted()
		if r := n.CLI("", "volume", "set", "db", "size=64Mi"); r.Code == 0 || !strings.Contains(r.Stderr, "cannot shrink") {
			n.T.Errorf("after a restart it shrinks: %s%s", r.Stdout, r.Stderr)
		}
		p.Do("Remove", "db", nil)
		if left := n.kept(); len(left) > 0 || n.driver.proxy.count("DeleteVolume") != 1 {
			n.T.Errorf("kept after reclaim=Delete: %q", left)
		}
		n.nothingLeft()
	})
}

// A driver's refusal is not waited for: a claim that an earlier create left takes another size.
func TestAClaimThatWasRefusedTakesAnotherSize(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	p := n.withPlugin()
	if _, err := p.Ask(t.Context(), "Create", "big", map[string]string{"class": "class", "size": "7Ei"}); err == nil ||
		!strings.Contains(err.Error(), "no volume was made") {
		t.Errorf("the refusal is not the answer: %v", err)
	}
	p.Do("Create", "big", map[string]string{"class": "class", "size": "64Mi"})
	n.marked(p, "big", "small")
	p.Do("Remove", "big", nil)
}

// mount -a leaves a line alone that is mounted, except for its options, and follows a line that has got an owner since; a
// working directory that has the source's path does not change the source.
func TestALineOfFstabIsSaidAgain(t *testing.T) {
	harness.MountHelper(t, program)
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	srv, fstab, work := n.Path("srv"), n.Path("fstab"), n.Path("work")
	for _, dir := range []string{srv, filepath.Join(work, "default/data")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountAll := func(source, options string) ([]byte, error) {
		write(t, fstab, source+" "+srv+" csi class=class,"+options+",_netdev,socket="+n.Socket+" 0 0\n")
		mount := exec.Command("mount", "--all", "--fstab", fstab)
		mount.Dir = work
		return mount.CombinedOutput()
	}
	for _, options := range []string{"size=64Mi", "size=64Mi,ro", "size=64Mi,rw,nodev", "size=32Mi,uid=1234,mode=750"} {
		if out, err := mountAll("csi:default/data", options); err != nil {
			t.Fatalf("%s: %v\n%s", options, err, out)
		}
		layers := strings.Fields(host(t, "findmnt", "--noheadings", "--raw", "--output", "TARGET", "--mountpoint", srv))
		if len(layers) != 1 {
			t.Errorf("%s: mounts %q, want one", options, layers)
		}
		var fs unix.Statfs_t
		if err := unix.Statfs(srv, &fs); err != nil || (fs.Flags&unix.ST_RDONLY != 0) != strings.Contains(options, "ro") {
			t.Errorf("%s: flags %x, %v", options, fs.Flags, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(srv, &st); err != nil || st.Uid != 1234 || st.Mode&0o777 != 0o750 {
		t.Errorf("owner %d, mode %o, %v", st.Uid, st.Mode&0o777, err)
	}
	host(t, "umount", srv)
	if out, err := mountAll("default/data", "size=64Mi"); err == nil || !strings.Contains(string(out), "write csi:NAMESPACE/CLAIM") {
		t.Errorf("a source that is a path: %v\n%s", err, out)
	}
	if err := os.Remove(srv); err != nil {
		t.Fatal(err)
	}
	if out, err := mountAll("csi:default/other", "size=64Mi"); err == nil || n.driver.proxy.count("CreateVolume") != 1 {
		t.Errorf("a directory that is missing: %v, %d calls of CreateVolume\n%s", err, n.driver.proxy.count("CreateVolume"), out)
	}
	n.NoVolumes()
}

// podman passes annotations of kube play and User= of quadlet as options of its own names.
func TestOptionsOfPodman(t *testing.T) {
	eachKind(t, func(n *node) {
		n.Apply(n.driver.class())
		p := n.withPlugin()
		for name, opts := range map[string]map[string]string{
			"kube":    {"UID": "999", "GID": "998", "o": "class=class,size=64Mi"},
			"quadlet": {"UID": "999", "GID": "998", "SIZE": "64Mi", "o": "uid=999,gid=998,class=class,size=64Mi"},
		} {
			p.Do("Create", name, opts)
			var st unix.Stat_t
			if err := unix.Stat(p.Do("Mount", name, nil).Mountpoint, &st); err != nil || st.Uid != 999 || st.Gid != 998 {
				n.T.Errorf("%s: owner %d:%d, %v", name, st.Uid, st.Gid, err)
			}
			if got := n.Do("", "get", "pvc", name, "-o", "jsonpath={.requestedBytes}"); got != "67108864" {
				n.T.Errorf("%s: %s bytes", name, got)
			}
			p.Do("Unmount", name, nil)
			p.Do("Remove", name, nil)
		}
	})
}

// With volume-subpath dockerd binds a directory of the volume to a place of its own, and gives that to the container. The
// volume stays while that is mounted, also after the unmount that docker cp sends, and goes with it.
func TestASubpathOfDockerHoldsItsVolume(t *testing.T) {
	localOnly(t)
	t.Parallel()
	n := newNode(t, kinds()[0])
	n.Apply(n.driver.class())
	p := n.withPlugin()
	p.Do("Create", "db", map[string]string{"class": "class", "size": "64Mi"})
	sub := filepath.Join(p.Do("Mount", "db", nil).Mountpoint, "sub")
	safe := n.Path("safe")
	for _, dir := range []string{sub, safe} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(sub, safe, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(safe, unix.MNT_DETACH) })
	p.Do("Unmount", "db", nil)
	n.Eventually("the kernel to be asked who has the volume", func() bool {
		return strings.Contains(n.Do("", "volume", "list"), "the mount at "+safe)
	})
	if got := n.driver.proxy.count("NodeUnpublishVolume"); got != 0 {
		t.Errorf("%d calls of NodeUnpublishVolume under a subpath", got)
	}
	if err := unix.Unmount(safe, 0); err != nil {
		t.Fatal(err)
	}
	n.NoVolumes()
}

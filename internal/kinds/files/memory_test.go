package files_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/internal/kinds/files"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

const canary = "canary-1f0c77d2" // the value of a secret

// The files of a downwardAPI volume are on a tmpfs, whose device nodes and set-user-ID programs have no effect; a
// configMap is a directory, with the options of the file system that the root directory is on.
func TestWhichVolumesAreOfTheRootsFileSystem(t *testing.T) {
	for kind, own := range map[state.DriverName]bool{files.ConfigMap: false, files.DownwardAPI: true} {
		n := newNode(t, kind, configs[kind])
		n.source.put("default/settings", map[string]string{"a": "1"})
		n.source.label("1")
		if err := n.publish(); err != nil {
			t.Fatal(err)
		}
		var volume, root unix.Stat_t
		var fs unix.Statfs_t
		if err := errors.Join(unix.Stat(n.target(), &volume), unix.Stat(filepath.Dir(n.target()), &root), unix.Statfs(n.target(), &fs)); err != nil {
			t.Fatal(err)
		}
		if has := volume.Dev != root.Dev; has != own {
			t.Errorf("%s: a file system of its own: %v, want %v", kind, has, own)
		}
		const safe = unix.ST_NOSUID | unix.ST_NODEV
		if own && (fs.Type != unix.TMPFS_MAGIC || fs.Flags&safe != safe) {
			t.Errorf("%s: a file system of type %#x with flags %#x, want a tmpfs with nosuid, nodev", kind, fs.Type, fs.Flags)
		}
	}
}

// Items: L05.
func TestSecretIsNeverOnADisk(t *testing.T) {
	for kind, config := range map[state.DriverName]string{
		files.Secret:    `{"secretName": "settings"}`,
		files.Projected: `{"sources": [{"secret": {"name": "settings"}}]}`,
	} {
		n := newNode(t, kind, config)
		n.source.put("default/settings", map[string]string{"a": canary})
		if err := n.publish(); err != nil {
			t.Fatal(err)
		}
		var st unix.Statfs_t
		if err := unix.Statfs(n.target(), &st); err != nil || st.Type != unix.TMPFS_MAGIC {
			t.Errorf("%s: got a file system of type %#x, %v, want a tmpfs", kind, st.Type, err)
		}
		const safe = unix.ST_NOSUID | unix.ST_NODEV
		if st.Flags&safe != safe {
			t.Errorf("%s: got flags %#x, want nosuid, nodev", kind, st.Flags)
		}
		can := mount.New().Features()&mount.NoSwap != 0
		if noSwap := slices.Contains(superOptions(t, n.target()), "noswap"); noSwap != can {
			t.Errorf("%s: kept from swap: %v; the kernel can: %v", kind, noSwap, can)
		}
		if data, err := os.ReadFile(n.target() + "/a"); err != nil || string(data) != canary {
			t.Errorf("%s: got %q, %v", kind, data, err)
		}
		if err := unix.Unmount(n.target(), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		nowhere(t, filepath.Dir(filepath.Dir(n.target())), canary)
		// The next publish restores the removed mount.
		n.want(map[string]string{"a": "0644 " + canary, "binary": "0644 \x00\x01\x02"})
	}
}

// superOptions returns the options of the file system that is mounted at path.
func superOptions(t *testing.T, path string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[4] == path {
			return strings.Split(f[len(f)-1], ",")
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return nil
}

// nowhere fails the test if any file below dir contains the text.
func nowhere(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			t.Errorf("%s: has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSecretIsNotWrittenToWhatIsNoTmpfs(t *testing.T) {
	n := newNode(t, files.Secret, `{"secretName": "settings"}`)
	n.source.put("default/settings", map[string]string{"a": canary})
	disk := t.TempDir()
	if err := os.MkdirAll(n.target(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(disk, n.target(), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(disk, &st); err != nil {
		t.Fatal(err)
	}
	if st.Type == unix.TMPFS_MAGIC {
		t.Fatalf("%s is on a tmpfs: set TMPDIR to a directory on a disk", disk)
	}
	if err := n.publish(); !errors.Is(err, files.ErrNotInMemory) {
		t.Errorf("got %v, want ErrNotInMemory", err)
	}
	nowhere(t, disk, canary)
}

func TestErrorsHaveNoSecret(t *testing.T) {
	for _, config := range []string{
		`{"secretName": "settings", "items": [{"key": "nope", "path": "x"}]}`,
		`{"secretName": "settings", "items": [{"key": "a", "path": "../x"}]}`,
		`{"secretName": "settings", "items": [{"key": "a", "path": "x"}, {"key": "a", "path": "x/y"}]}`,
	} {
		n := newNode(t, files.Secret, config)
		n.source.put("default/settings", map[string]string{"a": canary})
		if err := n.publish(); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: got %v", config, err)
		}
	}
}

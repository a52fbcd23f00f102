package uninstall

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/filelock"
	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/audit"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/drivertest"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { drivertest.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// installed returns a node on which csi-volmgr has run.
func installed(t *testing.T) Config {
	t.Helper()
	dir := t.TempDir()
	c := Config{
		Root: dir + "/root", StateDir: dir + "/state", Socket: dir + "/run/s", ClaimsBucket: "claims",
		SnapshotBuckets: []string{"snapshots", "groupsnapshots"},
	}
	for _, d := range []string{
		"root/pods", "root/plugins_registry", "root/plugins/kubernetes.io/csi/d/hash/globalmount",
		"root/plugins/kubernetes.io/csi/volumeDevices/staging/pv", "run", "state/secrets", "state/local-driver/data",
	} {
		must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"run/s", "run/s.lock", "run/revision.key", "state/secrets/a", "state/storage-id", "state/storage-id.new", "state/state.db.damaged"} {
		must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	b, err := journal.OpenBolt(c.StateDir + "/state.db")
	must(t, err)
	must(t, b.Close())
	return c
}

func do(t *testing.T, c Config) (Plan, error) {
	t.Helper()
	u, err := New(c)
	if err != nil {
		return Plan{}, err
	}
	defer func() { must(t, u.Close()) }()
	return u.Do(t.Context(), audit.By{})
}

// tree lists the files below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); rel != "." {
			all = append(all, rel)
		}
		return err
	}))
	return strings.Join(all, " ")
}

func TestACleanNodeKeepsNothingButTheAuditLog(t *testing.T) {
	c := installed(t)
	top := filepath.Dir(c.Root)
	u, err := New(c)
	must(t, err)
	before := tree(t, top)
	p, err := u.Plan(t.Context())
	if err != nil || p.Err() != nil || len(p.Files) < 7 {
		t.Errorf("plan %+v, %v", p, err)
	}
	must(t, u.Close())
	if after := tree(t, top); after != before {
		t.Errorf("the plan alone changed %q to %q", before, after)
	}
	if _, err := do(t, c); err != nil {
		t.Fatal(err)
	}
	if left := tree(t, top); left != "state state/audit.log" {
		t.Errorf("left: %s", left)
	}
	lines, err := audit.Open(c.StateDir, nil).Lines()
	if err != nil || len(lines) != 2 || lines[0].Begins.Verb != "uninstall" || !lines[1].Done {
		t.Errorf("audit log %+v, %v", lines, err)
	}
	if _, err := do(t, c); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestOthersThingsStay(t *testing.T) {
	c := installed(t)
	for _, f := range []string{
		c.Root + "/plugins/other/csi.sock", c.StateDir + "/notes.txt", c.StateDir + "/state.db.of-monday",
	} {
		must(t, os.MkdirAll(filepath.Dir(f), 0o755))
		must(t, os.WriteFile(f, nil, 0o600))
	}
	p, err := do(t, c)
	must(t, err)
	want := "root root/plugins root/plugins/other root/plugins/other/csi.sock state state/audit.log state/notes.txt " +
		"state/state.db.of-monday"
	if left := tree(t, filepath.Dir(c.Root)); left != want {
		t.Errorf("left: %s; want %s", left, want)
	}
	if kept := strings.Join(p.Kept, " "); !strings.Contains(kept, c.Root) {
		t.Errorf("kept %s", kept)
	}
}

// A directory's name may have what a pattern takes for a wildcard, and match the directory of another node.
func TestADirectoryIsNotTakenForAPattern(t *testing.T) {
	c := installed(t)
	other := c.StateDir + "2"
	must(t, os.Rename(c.StateDir, c.StateDir+"*"))
	c.StateDir += "*"
	must(t, os.MkdirAll(other, 0o755))
	must(t, os.WriteFile(other+"/state.db", nil, 0o600))
	_, err := do(t, c)
	must(t, err)
	if left := tree(t, filepath.Dir(c.Root)); left != "state* state*/audit.log state2 state2/state.db" {
		t.Errorf("left: %s", left)
	}
}

func TestUninstallRefusesWhatCouldLoseData(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		make       func(t *testing.T, c Config)
	}{
		{"a record", "1 volumes have records: d^v", func(t *testing.T, c Config) {
			b, err := journal.OpenBolt(c.StateDir + "/state.db")
			must(t, err)
			v := state.Volume{ID: "d^v", Stage: state.Fact{Phase: state.Present}}
			must(t, b.Commit(t.Context(), map[state.VolumeID]*state.Volume{"d^v": &v}))
			must(t, b.Close())
		}},
		{"a volume that it made", "1 claims have volumes", func(t *testing.T, c Config) {
			b, err := journal.OpenBolt(c.StateDir + "/state.db")
			must(t, err)
			must(t, b.CommitBucket(t.Context(), "claims", map[string][]byte{"default/data": []byte("{}")}))
			must(t, b.Close())
		}},
		{"snapshots that it made", "2 snapshots and groups", func(t *testing.T, c Config) {
			b, err := journal.OpenBolt(c.StateDir + "/state.db")
			must(t, err)
			for _, bucket := range c.SnapshotBuckets {
				must(t, b.CommitBucket(t.Context(), bucket, map[string][]byte{"default/s": []byte("{}")}))
			}
			must(t, b.Close())
		}},
		{"a mount", "tmpfs is mounted", func(t *testing.T, c Config) {
			path := c.Root + "/plugins/kubernetes.io/csi/d/hash/globalmount"
			must(t, unix.Mount("x", path, "tmpfs", 0, ""))
			t.Cleanup(func() { must(t, unix.Unmount(path, 0)) })
		}},
		{"a file of a pod", "precious", func(t *testing.T, c Config) {
			must(t, os.MkdirAll(c.Root+"/pods/u/volumes/k/n", 0o755))
			must(t, os.WriteFile(c.Root+"/pods/u/volumes/k/n/precious", nil, 0o600))
		}},
		{"data of the local driver", "delete its claims first", func(t *testing.T, c Config) {
			must(t, os.WriteFile(c.StateDir+"/local-driver/data/v.img", nil, 0o600))
		}},
		{"a daemon", "the daemon runs", func(t *testing.T, c Config) {
			b, err := journal.OpenBolt(c.StateDir + "/state.db")
			must(t, err)
			t.Cleanup(func() { must(t, b.Close()) })
		}},
		{"a daemon with another state directory", "a daemon uses", func(t *testing.T, c Config) {
			root, err := os.Open(c.Root)
			must(t, err)
			must(t, filelock.Take(root))
			t.Cleanup(func() { must(t, root.Close()) })
		}},
		{"a file beside the local driver's data", "delete its claims first", func(t *testing.T, c Config) {
			must(t, os.WriteFile(c.StateDir+"/local-driver/copy.img", nil, 0o600))
		}},
		{"a journal that may have lost records", "may have lost its newest records", func(t *testing.T, c Config) {
			path := c.StateDir + "/state.db"
			b, err := journal.OpenBolt(path)
			must(t, err)
			must(t, b.Spare(t.Context()))
			must(t, b.Close())
			must(t, os.WriteFile(path, []byte("garbage"), 0o600))
			b, err = journal.OpenBolt(path)
			must(t, err)
			must(t, b.Close())
		}},
		{"a journal that cannot be read", "cannot tell what is mounted", func(t *testing.T, c Config) {
			must(t, os.WriteFile(c.StateDir+"/state.db", []byte("garbage"), 0o600))
			must(t, os.WriteFile(c.StateDir+"/state.db.spare", []byte("garbage"), 0o600))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := installed(t)
			tt.make(t, c)
			before := tree(t, filepath.Dir(c.Root))
			_, err := do(t, c)
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a refusal with %q", err, tt.want)
			}
			if after := tree(t, filepath.Dir(c.Root)); after != before {
				t.Errorf("it changed %q to %q", before, after)
			}
		})
	}
}

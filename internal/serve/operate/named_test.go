package operate

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-volmgr/csi-volmgr/internal/host/holders"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
)

// The holders of a volume besides csi-volmgr, from what the kernel shows of every namespace
// and process.
func TestWhoHoldsANamedVolume(t *testing.T) {
	const root = "/var/lib/kubelet"
	own := root + "/pods/u/volumes/kubernetes.io~csi/pv/mount"
	shim := holders.Container{ID: "c0ffee"}
	for name, tc := range map[string]struct {
		report holders.Report
		want   []named.Holder
	}{
		"a mount of the host": {
			holders.Report{Mounts: []string{"/srv/data"}}, []named.Holder{{Path: "/srv/data"}},
		},
		"a container": {
			holders.Report{Namespaces: []holders.Namespace{{PID: 7, Name: "postgres", Container: shim, Mounts: []string{"/data"}}}},
			[]named.Holder{{PID: 7, Program: "postgres", Container: "c0ffee", Path: "/data"}},
		},
		"a container with a path like csi-volmgr's": {
			holders.Report{Namespaces: []holders.Namespace{{PID: 7, Mounts: []string{own}}}}, []named.Holder{{PID: 7, Path: own}},
		},
		"a process of a mount that was unmounted lazily": {
			holders.Report{Processes: []holders.Process{{PID: 9, Name: "tar", Uses: []holders.Use{{Kind: "fd", Path: "/f", Detached: true}}}}},
			[]named.Holder{{PID: 9, Program: "tar", Path: own, Detached: true}},
		},
		"a process of such a mount, which may be another volume's": {
			holders.Report{Processes: []holders.Process{{PID: 9, Uses: []holders.Use{{Detached: true, Unsure: true}, {Detached: true, Unsure: true}}}}},
			[]named.Holder{{PID: 9, Path: own, Detached: true, Unsure: true}},
		},
		"a process that has the volume in two ways": {
			holders.Report{Processes: []holders.Process{{PID: 9, Uses: []holders.Use{{Detached: true, Unsure: true}, {Kind: "cwd"}}}}},
			[]named.Holder{{PID: 9, Path: own}},
		},
		"a process of the host": {
			holders.Report{Processes: []holders.Process{{PID: 9, Name: "tar", Uses: []holders.Use{{Kind: "fd", Path: own + "/f"}}}}},
			[]named.Holder{{PID: 9, Program: "tar", Path: own}},
		},
		"a process of a container that is known": {
			holders.Report{
				Namespaces: []holders.Namespace{{PID: 7, Name: "postgres", Container: shim, Mounts: []string{"/data"}}},
				Processes:  []holders.Process{{PID: 8, Container: shim, Uses: []holders.Use{{Kind: "fd", Path: "/data/f"}}}},
			},
			[]named.Holder{{PID: 7, Program: "postgres", Container: "c0ffee", Path: "/data"}},
		},
		"the daemon itself": {
			report: holders.Report{Processes: []holders.Process{{PID: os.Getpid(), Uses: []holders.Use{{Kind: "fd", Path: own}}}}},
		},
	} {
		if got := namedHolders(tc.report, own); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// A process that could not be inspected may hold a volume; process 1 belongs to no front end.
func TestProcessThatIsNotReadMayHoldAVolume(t *testing.T) {
	for _, tc := range []struct {
		unread []holders.Unread
		known  bool
	}{
		{nil, true},
		{[]holders.Unread{{PID: 1, Why: "permission denied"}}, true},
		{[]holders.Unread{{PID: 1}, {PID: 7, Name: "postgres"}}, false},
	} {
		if err := unread(tc.unread); (err == nil) != tc.known {
			t.Errorf("%+v: got %v", tc.unread, err)
		}
	}
}

// A volume whose only possible holder cannot be inspected is not free: it would be unmounted or removed under a
// container of another user. A holder that is found is the answer, whatever else could not be inspected.
func TestAVolumeIsNotFreeIfAProcessIsNotRead(t *testing.T) {
	proc, root := t.TempDir(), openRoot(t)
	target := root.Name() + "/pods/u/volumes/v"
	write := func(pid, ns string, table ...string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(ns, filepath.Join(proc, pid, "ns", "mnt")); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(proc, pid, "mountinfo")
		if len(table) == 0 { // it cannot be read
			if err := os.Mkdir(file, 0o700); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(file, []byte(strings.Join(table, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &namedMounts{c: NamedConfig{Root: root}}
	m.holders.Proc = proc
	write("self", "mnt:[1]", "1 0 254:1 / / rw - ext4 /dev/vda rw", "2 1 7:77 / "+target+" rw - ext4 /dev/loop77 rw")
	if found, err := m.holdersOf(t.Context(), []string{target}); err != nil || len(found) != 0 {
		t.Errorf("no other process: %v, %v", found, err)
	}
	write("7", "mnt:[2]")
	found, err := m.holdersOf(t.Context(), []string{target})
	if err == nil || !strings.Contains(err.Error(), "process 7") || len(found) != 0 {
		t.Errorf("a process that cannot be inspected: %v, %v", found, err)
	}
	write("8", "mnt:[3]", "5 0 7:77 / /data rw - ext4 /dev/loop77 rw")
	if found, err := m.holdersOf(t.Context(), []string{target}); err != nil || len(found) != 1 || found[0].PID != 8 {
		t.Errorf("beside a container that has the volume: %v, %v", found, err)
	}
}

// openRoot opens a directory of its own as the root of volumes.
func openRoot(t *testing.T) *os.File {
	t.Helper()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// A process is known by its start, also with a space or a parenthesis in its name, and one that has ended is not.
func TestWhenAProcessStarted(t *testing.T) {
	odd := filepath.Join(t.TempDir(), "a) b")
	sleep, err := exec.LookPath("sleep")
	if err == nil {
		err = os.Symlink(sleep, odd)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(odd, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := int32(cmd.Process.Pid)
	own, first := started(int32(os.Getpid())), started(pid)
	if own == "" || first == "" || first != started(pid) || own == first {
		t.Errorf("this process started at %q, a later one at %q", own, first)
	}
	if _, err := strconv.ParseUint(first, 10, 64); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := started(pid); got != "" {
		t.Errorf("a process that has ended started at %q", got)
	}
}

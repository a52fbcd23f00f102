package operate

import (
	"os"
	"reflect"
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

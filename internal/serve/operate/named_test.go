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
		"csi-volmgr's own mounts": {report: holders.Report{Mounts: []string{own, root + "/plugins/x/globalmount"}}},
		"a mount of the host": {
			holders.Report{Mounts: []string{own, "/srv/data"}}, []named.Holder{{Path: "/srv/data"}},
		},
		"a container": {
			holders.Report{Namespaces: []holders.Namespace{{PID: 7, Name: "postgres", Container: shim, Mounts: []string{"/data"}}}},
			[]named.Holder{{PID: 7, Program: "postgres", Container: "c0ffee", Path: "/data"}},
		},
		"a copy of the host's namespace": {
			report: holders.Report{Namespaces: []holders.Namespace{{PID: 7, Name: "systemd-udevd", Mounts: []string{own}}}},
		},
		"a monitor with the host's tree": {
			report: holders.Report{Namespaces: []holders.Namespace{{PID: 7, Mounts: []string{"/rootfs" + own}}}},
		},
		"a container with a copy and the volume": {
			holders.Report{Namespaces: []holders.Namespace{{PID: 7, Mounts: []string{"/rootfs" + own, "/data"}}}},
			[]named.Holder{{PID: 7, Path: "/data"}},
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
		if got := namedHolders(tc.report, root, own); !reflect.DeepEqual(got, tc.want) {
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

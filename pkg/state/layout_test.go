package state

import "testing"

func TestAPathSaysWhatItIsFor(t *testing.T) {
	l := Layout{Root: "/var/lib/kubelet"}
	for path, want := range map[string]Place{
		l.Target(Filesystem, "uid", "pv-1"):                   {Pod: "uid", Name: "pv-1"},
		l.Target(Block, "uid", "pv-1"):                        {Pod: "uid", Name: "pv-1"},
		l.BuiltinTarget("kubernetes.io/nfs", "uid", "data"):   {Pod: "uid", Name: "data", Builtin: true, Kind: "kubernetes.io/nfs"},
		l.StagePath(Filesystem, "csi.example", "vol-1", "pv"): {},
		l.StagePath(Block, "csi.example", "vol-1", "pv-1"):    {Name: "pv-1"},
		l.BuiltinStagePath("kubernetes.io/iscsi", "id"):       {Builtin: true, Kind: "kubernetes.io/iscsi"},
	} {
		want.Path = path
		if got, ok := l.Place(path); !ok || got != want {
			t.Errorf("%s: %v, %v, want %v", path, got, ok, want)
		}
	}
	for _, path := range []string{
		l.Root, "/var/lib/kubelet2/pods/uid/volumes/kubernetes.io~nfs/data", l.Plugins(), l.Registry(),
		l.Target(Filesystem, "uid", "pv-1") + "/below", l.DevicePath("uid", "pv-1") + "/x",
		l.Root + "/pods/uid/volumes/kubernetes.io~csi/pv-1", l.Root + "/pods/uid/volume-subpaths/data/main/0",
		l.Root + "/plugins/driver.example/mnt", l.BuiltinTarget("kubernetes.io/nfs", "uid", "data") + "/mount",
	} {
		if got, ok := l.Place(path); ok {
			t.Errorf("%s: %v", path, got)
		}
	}
}

package mount

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	mountutils "k8s.io/mount-utils"
)

func TestMounterMountsAsMountUtilsWould(t *testing.T) {
	device := ext4Device(t)
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		m := NewMounter(k)
		m.helper = func() mountutils.Interface { t.Error("a helper was asked for"); return mountutils.NewFakeMounter(nil) }
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		for _, c := range []struct {
			source, fsType string
			options        []string
			want           row
		}{
			{source, "", []string{"bind"}, row{fsType: "tmpfs", root: "/source"}},
			{source, "ext4", []string{"bind", "ro,noatime", "uid=0"}, row{fsType: "tmpfs", root: "/source", options: []string{"noatime", "ro"}}},
			{"none", "tmpfs", []string{"size=1m", "nosuid"}, row{fsType: "tmpfs", root: "/", options: []string{"nosuid"}}},
			{device, "ext4", []string{"ro"}, row{fsType: "ext4", root: "/", options: []string{"ro"}}},
		} {
			must(t, m.Mount(c.source, target, c.fsType, c.options))
			if r := rowAt(t, target); r.fsType != c.want.fsType || r.root != c.want.root || !slices.Equal(restrictions(r), c.want.options) {
				t.Errorf("%s %q: %s, root %s, %q", c.source, c.options, r.fsType, r.root, restrictions(r))
			}
			if mounted, err := m.IsMountPoint(target); err != nil || !mounted {
				t.Errorf("IsMountPoint: %v, %v", mounted, err)
			}
			must(t, m.Unmount(target))
			if not, err := m.IsLikelyNotMountPoint(target); err != nil || !not {
				t.Errorf("IsLikelyNotMountPoint: %v, %v", not, err)
			}
			must(t, m.Unmount(target))
		}
	})
}

func TestMounterRemounts(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		m, target := NewMounter(k), mkdir(t, dir, "target")
		must(t, m.Mount("none", target, "tmpfs", []string{"nosuid"}))
		must(t, m.Mount("", target, "", []string{"remount", "bind", "ro"}))
		if r := rowAt(t, target); !slices.Equal(restrictions(r), []string{"ro"}) || slices.Contains(r.superOptions, "ro") {
			t.Errorf("remount,bind,ro: %q %q", r.options, r.superOptions)
		}
		must(t, m.Mount("", target, "", []string{"remount,rw", "size=1m"}))
		if r := rowAt(t, target); restrictions(r) != nil || !slices.Contains(r.superOptions, "size=1024k") {
			t.Errorf("remount,rw,size: %q %q", r.options, r.superOptions)
		}
	})
}

// Mounts that need a helper program go to mount(8), with their secrets.
func TestMounterLeavesHelpersToMountUtils(t *testing.T) {
	k, dir := New(), scratch(t)
	m, target := NewMounter(k), mkdir(t, dir, "target")
	helper := mountutils.NewFakeMounter(nil)
	m.helper = func() mountutils.Interface { return helper }
	must(t, m.Mount("server:/export", target, "nfs", []string{"vers=4"}))
	must(t, m.MountSensitive("//server/share", target, "cifs", nil, []string{"password=x"}))
	must(t, m.Mount("LABEL=data", target, "ext4", nil))
	if log := helper.GetLog(); len(log) != 3 {
		t.Errorf("the helper was asked %d times: %v", len(log), log)
	}
	if look(t, k, target).Mounted {
		t.Error("something is mounted")
	}
}

func TestMounterFindsOtherMountsOfTheSame(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		m := NewMounter(k)
		source, a, b := mkdir(t, dir, "the source"), mkdir(t, dir, "a b"), mkdir(t, dir, "b")
		must(t, k.Bind(source, a, BindOptions{}))
		must(t, k.Bind(source, b, BindOptions{}))
		for path, want := range map[string][]string{
			source: {a, b}, a: {b}, b: {a}, dir + "/absent/x": nil,
		} {
			refs, err := m.GetMountRefs(path)
			if slices.Sort(refs); err != nil || !slices.Equal(refs, want) {
				t.Errorf("GetMountRefs(%s) = %q, %v; want %q", path, refs, err, want)
			}
		}
		points, err := m.List()
		must(t, err)
		if !slices.ContainsFunc(points, func(p mountutils.MountPoint) bool {
			return p.Path == a && p.Device == "scratch" && p.Type == "tmpfs" && slices.Contains(p.Opts, "rw")
		}) {
			t.Errorf("List has no %s", a)
		}
		if _, err := m.IsMountPoint(dir + "/absent"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("IsMountPoint of nothing: %v", err)
		}
		if !m.CanSafelySkipMountPointCheck() {
			t.Error("to unmount nothing is no error, so the check can be skipped")
		}
	})
}

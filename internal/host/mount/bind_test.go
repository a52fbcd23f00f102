package mount

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestBindHasTheOptionsAsked(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		write(t, source+"/file", "content")
		for _, c := range []struct {
			o    BindOptions
			want []string
		}{
			{BindOptions{}, nil},
			{BindOptions{ReadOnly: true}, []string{"ro"}},
			{BindOptions{NoSuid: true, NoDev: true}, []string{"nodev", "nosuid"}},
			{BindOptions{ReadOnly: true, NoSuid: true, NoDev: true, NoExec: true}, []string{"nodev", "noexec", "nosuid", "ro"}},
		} {
			must(t, k.Bind(source, target, c.o))
			if got := restrictions(rowAt(t, target)); !slices.Equal(got, c.want) {
				t.Errorf("%+v: options %q, want %q", c.o, got, c.want)
			}
			if got := read(t, target+"/file"); got != "content" {
				t.Errorf("%+v: content %q", c.o, got)
			}
			err := os.WriteFile(target+"/new", nil, 0o600)
			if c.o.ReadOnly != errors.Is(err, unix.EROFS) {
				t.Errorf("%+v: writing: %v", c.o, err)
			}
			must(t, k.Unmount(t.Context(), target))
		}
		if restrictions(rowAt(t, dir)) != nil {
			t.Error("the source's own mount was changed")
		}
	})
}

func restrictions(r row) []string {
	var found []string
	for _, o := range r.options {
		if slices.Contains([]string{"ro", "nosuid", "nodev", "noexec", "noatime"}, o) {
			found = append(found, o)
		}
	}
	slices.Sort(found)
	return found
}

func TestBindKeepsTheOptionsOfItsSource(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		must(t, unix.Mount("none", source, "tmpfs", unix.MS_NOSUID|unix.MS_NOATIME, ""))
		must(t, k.Bind(source, target, BindOptions{ReadOnly: true}))
		if got := restrictions(rowAt(t, target)); !slices.Equal(got, []string{"noatime", "nosuid", "ro"}) {
			t.Errorf("options %q", got)
		}
	})
}

func TestRecursiveBindTakesAndRestrictsWhatIsMountedBelow(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
		must(t, k.Tmpfs(mkdir(t, source, "sub"), TmpfsOptions{}))
		write(t, source+"/sub/file", "below")

		must(t, k.Bind(source, target, BindOptions{ReadOnly: true}))
		if exists(target + "/sub/file") {
			t.Error("a plain bind brought a mount along")
		}
		must(t, k.Unmount(t.Context(), target))

		must(t, k.Bind(source, target, BindOptions{ReadOnly: true, Recursive: true}))
		if got := read(t, target+"/sub/file"); got != "below" {
			t.Errorf("content %q", got)
		}
		if err := os.WriteFile(target+"/sub/file", nil, 0o600); !errors.Is(err, unix.EROFS) {
			t.Errorf("writing below a read-only recursive bind: %v", err)
		}
		write(t, source+"/sub/file", "the source is still writable")
		must(t, k.Detach(t.Context(), target))
	})
}

// A read-only bind is never writable: a concurrent writer finds the directory below the
// mount, or a read-only mount.
func TestReadOnlyBindIsNeverWritable(t *testing.T) {
	needs(t, MountTree)
	k, dir := New(), scratch(t)
	source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				os.WriteFile(target+"/x", nil, 0o600)
			}
		}
	}()
	for range 300 {
		must(t, k.Bind(source, target, BindOptions{ReadOnly: true}))
		must(t, unix.Unmount(target, unix.MNT_DETACH))
	}
	close(stop)
	<-done
	if exists(source + "/x") {
		t.Error("something was written through a read-only bind")
	}
}

func TestBindThatFailsLeavesNothing(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		directory, file := mkdir(t, dir, "directory"), write(t, dir+"/file", "")
		for _, c := range []struct {
			source, target string
			want           error
		}{
			{dir + "/absent", directory, unix.ENOENT},
			{directory, dir + "/absent", unix.ENOENT},
			{directory, "/", unix.EINVAL},
		} {
			err := k.Bind(c.source, c.target, BindOptions{ReadOnly: true})
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.source) || !strings.Contains(err.Error(), c.target) {
				t.Errorf("bind %s to %s: %v, want %v with both paths", c.source, c.target, err, c.want)
			}
		}
		if err := k.Bind(directory, file, BindOptions{}); err == nil {
			t.Error("a directory was bound to a file")
		}
		if err := k.Bind(file, directory, BindOptions{}); err == nil {
			t.Error("a file was bound to a directory")
		}
		if entries, err := k.List(t.Context(), dir); err != nil || len(entries) != 1 {
			t.Errorf("left: %+v, %v", entries, err)
		}
	})
}

func TestRemountGivesExactlyTheOptions(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target := mkdir(t, dir, "target")
		must(t, k.Bind(dir, target, BindOptions{NoExec: true}))
		remount := func(target string, options ...string) error {
			return NewMounter(k).Mount("", target, "", append(options, "bind", "remount"))
		}
		must(t, remount(target, "ro", "nosuid"))
		if got := restrictions(rowAt(t, target)); !slices.Equal(got, []string{"nosuid", "ro"}) {
			t.Errorf("options %q", got)
		}
		must(t, remount(target))
		if got := restrictions(rowAt(t, target)); got != nil {
			t.Errorf("options %q, want none", got)
		}
		write(t, dir+"/other", "the file system stayed writable")
		if err := remount(mkdir(t, dir, "plain")); !errors.Is(err, unix.EINVAL) {
			t.Errorf("remount of no mount: %v, want EINVAL", err)
		}
	})
}

func TestPropagationIsSetAndSeen(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		target, peer := mkdir(t, dir, "target"), mkdir(t, dir, "peer")
		must(t, k.Bind(mkdir(t, dir, "source", "sub")+"/..", target, BindOptions{}))
		for _, p := range []Propagation{Shared, Private, Slave, Shared} {
			must(t, k.SetPropagation(target, p))
			shared, err := k.IsShared(target + "/sub")
			if err != nil || shared != (p == Shared) {
				t.Errorf("%v: IsShared = %v, %v", p, shared, err)
			}
		}
		must(t, k.Bind(target, peer, BindOptions{}))
		must(t, k.Tmpfs(target+"/sub", TmpfsOptions{}))
		if !look(t, k, peer+"/sub").Mounted {
			t.Error("what was mounted below a shared mount did not appear at its peer")
		}
		if err := k.SetPropagation(target, Propagation(9)); !errors.Is(err, unix.EINVAL) {
			t.Errorf("no such propagation: %v", err)
		}
	})
}

// A bind includes what is mounted below its source at that time. It receives what is mounted and unmounted there
// later, and its source receives nothing, unless the bind is a peer.
func TestABindIsASlaveUnlessAPeerIsAskedFor(t *testing.T) {
	for _, peer := range []bool{false, true} {
		t.Run(fmt.Sprint(peer), func(t *testing.T) {
			onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
				source, target := mkdir(t, dir, "source"), mkdir(t, dir, "target")
				must(t, unix.Mount("none", dir, "", unix.MS_SHARED, ""))
				must(t, unix.Mount("none", source, "tmpfs", 0, ""))
				for _, sub := range []string{"before", "later", "back"} {
					must(t, os.Mkdir(source+"/"+sub, 0o755))
				}
				must(t, k.Tmpfs(source+"/before", TmpfsOptions{}))
				must(t, k.Bind(source, target, BindOptions{Recursive: true, Peer: peer}))
				if !look(t, k, target+"/before").Mounted {
					t.Error("what was mounted below is not in the bind")
				}
				must(t, k.Tmpfs(source+"/later", TmpfsOptions{}))
				if !look(t, k, target+"/later").Mounted {
					t.Error("what was mounted at the source later is not in the bind")
				}
				must(t, unix.Unmount(source+"/before", 0))
				if look(t, k, target+"/before").Mounted {
					t.Error("what was unmounted at the source is mounted in the bind")
				}
				must(t, k.Tmpfs(target+"/back", TmpfsOptions{}))
				if look(t, k, source+"/back").Mounted != peer {
					t.Errorf("what was mounted in the bind is at the source: %v", !peer)
				}
				if shared, err := k.IsShared(target); err != nil || !shared {
					t.Errorf("a container could not be a slave of the bind: %v, %v", shared, err)
				}
			})
		})
	}
}

// Joined tells a bind of the kind that is asked for from others, also from those that an earlier version made.
func TestABindOfAnotherKindIsSeen(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		must(t, unix.Mount("none", dir, "", unix.MS_SHARED, ""))
		source := mkdir(t, dir, "source")
		must(t, unix.Mount("none", source, "tmpfs", 0, ""))
		slave, peer, private := mkdir(t, dir, "slave"), mkdir(t, dir, "peer"), mkdir(t, dir, "private")
		must(t, k.Bind(source, slave, BindOptions{}))
		must(t, k.Bind(source, peer, BindOptions{Peer: true}))
		must(t, unix.Mount(source, private, "", unix.MS_BIND, ""))
		must(t, unix.Mount("none", private, "", unix.MS_PRIVATE, ""))
		f, err := k.Open(source)
		must(t, err)
		defer f.Close()
		joined := func(target string, o BindOptions) bool {
			is, err := k.Joined(f, target, o)
			must(t, err)
			return is
		}
		for _, target := range []string{slave, peer, private} {
			if got := joined(target, BindOptions{}); got != (target == slave) {
				t.Errorf("%s is a slave: %v", target, got)
			}
			if got := joined(target, BindOptions{Peer: true}); got != (target == peer) {
				t.Errorf("%s is a peer: %v", target, got)
			}
		}
		must(t, unix.Mount("none", source, "", unix.MS_PRIVATE, ""))
		if !joined(private, BindOptions{}) || !joined(private, BindOptions{Peer: true}) {
			t.Error("a source without events has a bind that is not joined to it")
		}
	})
}

// What the volume's own mount forbids stays forbidden in a bind of mount -t csi and in its remount; options that are
// not listed stay as they are, and one that is lifted in the line is not imposed.
func TestRestrictionsOfTheSourceStay(t *testing.T) {
	onEachKernel(t, func(t *testing.T, k *Kernel, dir string) {
		source := mkdir(t, dir, "source")
		must(t, unix.Mount("x", source, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""))
		must(t, unix.Mount(source, source, "", unix.MS_BIND, ""))
		for words, want := range map[string][]string{
			"":                         {"nodev", "nosuid"},
			"ro":                       {"nodev", "nosuid", "ro"},
			"rw,suid,dev":              {"nodev", "nosuid"},
			"noexec,nosuid,nodev,exec": {"nodev", "nosuid"},
			"noatime,ro":               {"noatime", "nodev", "nosuid", "ro"},
		} {
			target := mkdir(t, dir, "target")
			must(t, k.BindRestricted(source, target, strings.Split(words, ",")))
			if got := restrictions(rowAt(t, target)); !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", words, got, want)
			}
			must(t, unix.Unmount(target, 0))
		}
		target := mkdir(t, dir, "remounted")
		must(t, k.BindRestricted(source, target, nil))
		for _, step := range []struct {
			words string
			want  []string
		}{
			{"ro", []string{"nodev", "nosuid", "ro"}},
			{"rw,noexec", []string{"nodev", "noexec", "nosuid"}},
			{"exec,suid", []string{"nodev"}}, // asked for by name
		} {
			must(t, k.Adjust(target, strings.Split(step.words, ",")))
			if got := restrictions(rowAt(t, target)); !slices.Equal(got, step.want) {
				t.Errorf("remount %q: %q, want %q", step.words, got, step.want)
			}
		}
		must(t, k.Adjust(target, []string{"ro"}))
		must(t, k.AdjustRestricted(source, target, []string{"rw", "suid", "noexec"})) // the line is said again
		if got, want := restrictions(rowAt(t, target)), []string{"nodev", "noexec"}; !slices.Equal(got, want) {
			t.Errorf("a line that is said again: %q, want %q", got, want)
		}
		must(t, k.Adjust(source, []string{"ro"}))
		must(t, k.AdjustRestricted(source, target, []string{"ro"}))
		must(t, k.AdjustRestricted(source, target, []string{"rw", "dev", "exec"}))
		if got, want := restrictions(rowAt(t, target)), []string{"nodev", "ro"}; !slices.Equal(got, want) {
			t.Errorf("a line that would lift what the volume forbids: %q, want %q", got, want)
		}
		must(t, k.BindRestricted(source, target, []string{"rw"}))
		if got := restrictions(rowAt(t, target)); !slices.Contains(got, "ro") {
			t.Errorf("a read-only volume is writable: %q", got)
		}
	})
}

package freeze

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/internal/host/isolate"
	"github.com/csi-volmgr/csi-volmgr/internal/host/mount"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// kernel stands in for helpers: it notes calls, and lets them hang or fail as configured.
type kernel struct {
	mu    sync.Mutex
	log   []string
	hang  chan struct{} // FIFREEZE hangs until it is closed; nil: it does not hang
	lost  bool          // the helper ends in FIFREEZE
	busy  bool          // another program has frozen the file system
	stuck int           // the number of thaws that fail
}

func (k *kernel) Do(ctx context.Context, _, name string, _ []byte) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log = append(k.log, name)
	if name == callThaw {
		if k.stuck > 0 {
			k.stuck--
			return nil, errors.New("i/o error")
		}
		return nil, nil
	}
	if hang := k.hang; hang != nil {
		k.mu.Unlock()
		select {
		case <-hang:
		case <-ctx.Done():
		}
		k.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	switch {
	case k.lost:
		return nil, fmt.Errorf("freeze: %w", isolate.ErrLost)
	case k.busy:
		return nil, ErrBusy
	}
	return nil, nil
}

func (k *kernel) calls() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.log, " ")
}

// mock is a running Freezer on a fake kernel.
type mock struct {
	*Freezer
	kernel  *kernel
	journal *journal
	path    string // where the volume is mounted; "" for nowhere
	die     func() // also waits for the end of Run
}

// made runs f with a Freezer in a bubble of its own, in the boot "boot".
func made(t *testing.T, j *journal, f func(t *testing.T, m *mock)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &mock{kernel: &kernel{}, journal: j, path: dir}
		m.Freezer = New(Config{
			Journal: j, Helpers: m.kernel, Boot: "boot", Logger: slog.New(slog.DiscardHandler), Never: []string{"/"},
			Mounts: func(context.Context) ([]mount.Entry, error) {
				return []mount.Entry{{Path: "/", Root: "/", Dev: disk}, {Path: dir, Root: "/", FSType: "ext4", Dev: loop}}, nil
			},
			Volumes: func() []Volume { return []Volume{staged("v", m.path)} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		m.die = sync.OnceFunc(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		defer m.die()
		synctest.Wait()
		f(t, m)
	})
}

func (m *mock) want(t *testing.T, calls string, records int) {
	t.Helper()
	synctest.Wait()
	if got := m.kernel.calls(); got != calls || m.journal.records() != records {
		t.Errorf("calls %q and %d records, want %q and %d", got, m.journal.records(), calls, records)
	}
}

// A FIFREEZE that outlasts the limit or its caller is an error. The Freezer thaws as soon as it
// returns, and not before: until then the record stays, and another freeze waits.
func TestAFreezeThatHangsIsThawedWhenItReturns(t *testing.T) {
	for _, byCaller := range []bool{false, true} {
		made(t, newJournal(), func(t *testing.T, m *mock) {
			m.kernel.hang = make(chan struct{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			if byCaller {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			}
			defer cancel()
			began := time.Now()
			_, err := m.Freeze(ctx, "v", 10*time.Second)
			if took := time.Since(began); err == nil || byCaller != errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			m.want(t, "freeze", 1)
			if _, err := m.Freeze(t.Context(), "v", time.Second); err == nil || !strings.Contains(err.Error(), "volume v") {
				t.Errorf("a second freeze: %v", err)
			}
			second := make(chan error, 1)
			go func() {
				thaw, err := m.Freeze(t.Context(), "v", time.Second)
				if err == nil && thaw(t.Context()) {
					err = errors.New("it ended early")
				}
				second <- err
			}()
			m.want(t, "freeze", 1)
			close(m.kernel.hang)
			if err := <-second; err != nil {
				t.Error(err)
			}
			m.want(t, "freeze thaw freeze thaw", 0)
		})
	}
}

// The limit ends a freeze whatever its caller does; the caller's thaw says so.
func TestTheLimitEndsAFreeze(t *testing.T) {
	made(t, newJournal(), func(t *testing.T, m *mock) {
		z, err := m.Freeze(t.Context(), "v", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - time.Nanosecond)
		m.want(t, "freeze", 1)
		time.Sleep(time.Nanosecond)
		m.want(t, "freeze thaw", 0)
		if !z(t.Context()) {
			t.Error("it is not said to have ended early")
		}
	})
}

// If the limit ends a freeze before its caller runs again, the caller learns that it ended early;
// if the freeze failed, the caller gets its error, whichever channel it sees first.
func TestALimitThatIsOverAtOnce(t *testing.T) {
	failure := errors.New("it cannot be frozen")
	for range 100 {
		for _, why := range []error{nil, failure} {
			z := newFreezing(nil, record{Dev: "7:3"})
			z.expired, z.err = why == nil, why
			if why == nil {
				close(z.frozen)
			}
			close(z.done)
			if err := z.awaitFrozen(t.Context()); !errors.Is(err, why) {
				t.Fatalf("%v, want %v", err, why)
			}
			if why == nil && !z.thawAndWait(t.Context()) {
				t.Fatal("it is not said to have ended early")
			}
		}
	}
}

// A thaw that fails is repeated, even if its caller has given up, until the record can go.
func TestAThawThatFailsIsTriedAgain(t *testing.T) {
	made(t, newJournal(), func(t *testing.T, m *mock) {
		z, err := m.Freeze(t.Context(), "v", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		m.kernel.stuck = 2
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if !z(ctx) {
			t.Error("it is said to be over")
		}
		m.want(t, "freeze thaw", 1)
		time.Sleep(3 * time.Second)
		m.want(t, "freeze thaw thaw thaw", 0)
	})
}

// The end of the daemon ends its freezes. The next daemon thaws what hangs then, by its record.
func TestTheEndOfTheDaemonEndsFreezes(t *testing.T) {
	made(t, newJournal(), func(t *testing.T, m *mock) {
		z, err := m.Freeze(t.Context(), "v", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		m.die()
		m.want(t, "freeze thaw", 0)
		if !z(t.Context()) {
			t.Error("it is not said to have ended early")
		}
		if _, err := m.Freeze(t.Context(), "v", time.Hour); err == nil {
			t.Error("a freeze after the end")
		}
	})
	j := newJournal()
	made(t, j, func(t *testing.T, m *mock) {
		m.kernel.hang = make(chan struct{})
		failed := make(chan error, 1)
		go func() { _, err := m.Freeze(t.Context(), "v", time.Hour); failed <- err }()
		m.want(t, "freeze", 1)
		m.die()
		if err := <-failed; err == nil {
			t.Error("it is frozen")
		}
		m.want(t, "freeze thaw", 1)
	})
	made(t, j, func(t *testing.T, m *mock) { m.want(t, "thaw", 0) })
}

// A lost helper may have frozen the file system; a refusal has not, and a freeze of another
// program stays.
func TestWhatIsThawedAfterAFailure(t *testing.T) {
	made(t, newJournal(), func(t *testing.T, m *mock) {
		m.kernel.lost = true
		if _, err := m.Freeze(t.Context(), "v", time.Hour); !errors.Is(err, isolate.ErrLost) {
			t.Error(err)
		}
		m.want(t, "freeze thaw", 0)
	})
	made(t, newJournal(), func(t *testing.T, m *mock) {
		m.kernel.busy = true
		if _, err := m.Freeze(t.Context(), "v", time.Hour); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		m.want(t, "freeze", 0)
	})
	made(t, newJournal(), func(t *testing.T, m *mock) {
		m.journal.fail = errors.New("disk full")
		if _, err := m.Freeze(t.Context(), "v", time.Hour); !errors.Is(err, m.journal.fail) {
			t.Error(err)
		}
		m.want(t, "", 0)
		m.journal.fail = nil
		if _, err := m.Freeze(t.Context(), "v", time.Hour); err != nil {
			t.Errorf("after a failure: %v", err)
		}
	})
}

// A volume that is not mounted has no writers, unless a pod has it at the end.
func TestAVolumeThatIsNotMounted(t *testing.T) {
	made(t, newJournal(), func(t *testing.T, m *mock) {
		path := m.path
		for _, mounted := range []bool{false, true} {
			m.path = ""
			z, err := m.Freeze(t.Context(), "v", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if mounted {
				m.path = path
			}
			if expired := z(t.Context()); expired != mounted {
				t.Errorf("mounted %v: early %v", mounted, expired)
			}
		}
		m.want(t, "", 0)
	})
}

// The Freezer thaws by device what an earlier daemon left, wherever it is mounted. A freeze
// of an earlier boot or of a device that is gone is over; the record of a device that exists
// but is not mounted stays.
func TestWhatAnEarlierDaemonLeft(t *testing.T) {
	left := func(dev, boot string) *journal {
		j := newJournal()
		j.values[dev] = fmt.Appendf(nil, `{"version":1,"volume":"v","path":"/gone","dev":%q,"fsType":"ext4","boot":%q}`, dev, boot)
		return j
	}
	made(t, left(mount.DeviceText(loop), "boot"), func(t *testing.T, m *mock) { m.want(t, "thaw", 0) })
	made(t, left(mount.DeviceText(loop), "earlier"), func(t *testing.T, m *mock) { m.want(t, "", 0) })
	made(t, left("4095:77", "boot"), func(t *testing.T, m *mock) { m.want(t, "", 0) })
	made(t, left("0:77", "boot"), func(t *testing.T, m *mock) { m.want(t, "", 1) })
	j := left(mount.DeviceText(loop), "boot")
	j.values[mount.DeviceText(other)] = []byte(`{"version":2}`)
	made(t, j, func(t *testing.T, m *mock) {
		m.want(t, "thaw", 1)
		if got := slices.Collect(maps.Keys(j.values)); !slices.Equal(got, []string{mount.DeviceText(other)}) {
			t.Error("a record that cannot be read is gone")
		}
	})
}

// The Freezer refuses to freeze before Run has read what an earlier daemon left.
func TestNoFreezeBeforeRun(t *testing.T) {
	dir := t.TempDir()
	f := New(Config{
		Volumes: func() []Volume { return []Volume{staged("v", dir)} },
		Mounts: func(context.Context) ([]mount.Entry, error) {
			return []mount.Entry{{Path: dir, Root: "/", FSType: "ext4", Dev: loop}}, nil
		},
	})
	if _, err := f.Freeze(t.Context(), "v", time.Hour); err == nil || !strings.Contains(err.Error(), "starting or stopping") {
		t.Error(err)
	}
}

// staged returns a volume that is staged at path; "" for one that is not.
func staged(id state.VolumeID, path string) Volume {
	v := state.Volume{ID: id, Spec: &state.Spec{StagePath: path}}
	if path != "" {
		v.Stage.Phase, v.Staged.Mounted = state.Present, true
	}
	return Volume{Volume: v}
}

// A volume is at its stage, else at the first of its targets.
func TestWhereAVolumeIs(t *testing.T) {
	mounted := func(id state.VolumeID, phase state.Phase, targets ...string) Volume {
		v := staged(id, "")
		v.Mounts = map[state.PodUID]state.Mount{}
		for i, target := range targets {
			v.Mounts[state.PodUID(fmt.Sprint(i))] = state.Mount{
				Fact: state.Fact{Phase: phase}, MountSpec: state.MountSpec{Target: target}, Seen: state.Seen{Mounted: true},
			}
		}
		return v
	}
	block := staged("v", "/stage/v")
	block.Spec.Mode = state.Block
	unknown := staged("v", "")
	unknown.Unknown = "a checksum"
	for what, c := range map[string]struct {
		v     Volume
		path  string
		own   int
		words string
	}{
		"staged":       {v: staged("v", "/stage/v"), path: "/stage/v", own: 2},
		"no stage":     {v: mounted("v", state.Present, "/pods/2/v", "/pods/1/v"), path: "/pods/1/v", own: 3},
		"not mounted":  {v: staged("v", ""), own: 1},
		"another's":    {v: staged("w", "/stage/w"), own: 1},
		"on its way":   {v: mounted("v", state.Entering, "/pods/1/v"), words: "is being mounted"},
		"block":        {v: block, words: "volumeMode Block"},
		"not readable": {v: unknown, words: "a checksum"},
	} {
		p, err := placeOf("v", []Volume{c.v, mounted("x", state.Present, "/pods/9/x")}, "/pods")
		if c.words != "" {
			if err == nil || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		if err != nil || p.Path != c.path || len(p.Own) != c.own || !slices.Contains(p.Others, "/pods/9/x") {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
}

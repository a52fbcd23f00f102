package manager

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func TestWhatShowsThatNothingHasGrown(t *testing.T) {
	both := func(device, files int64) state.Sizes { return state.Sizes{Device: device, FileSystem: files} }
	for name, tc := range map[string]struct {
		before, after state.Sizes
		have, want    int64
		words         string
	}{
		"both grow":                         {both(100, 90), both(200, 190), 100, 200, ""},
		"neither grows":                     {both(100, 90), both(100, 90), 100, 200, "device has 100"},
		"the file system does not":          {both(200, 90), both(200, 90), 100, 200, "file system has 90"},
		"the device had, the rest does":     {both(200, 90), both(200, 190), 100, 200, ""},
		"an earlier call did":               {both(200, 190), both(200, 190), 100, 200, ""},
		"an earlier call did, encrypted":    {both(184, 170), both(184, 170), 100, 200, ""},
		"too little to tell":                {both(100, 90), both(100, 90), 100, 120, ""},
		"a file system on what others have": {both(0, 0), both(0, 0), 100, 200, ""},
		"not known any more":                {both(100, 90), both(0, 0), 100, 200, ""},
		"large from the beginning":          {both(500, 480), both(500, 480), 100, 200, ""},
	} {
		if got := notGrown(tc.before, tc.after, tc.have, tc.want); (got == "") != (tc.words == "") || !strings.Contains(got, tc.words) {
			t.Errorf("%s: got %q, want %q", name, got, tc.words)
		}
	}
}

// sized is a kernel that reports sizes.
type sized struct {
	*fakeNode
	size int64
	err  error
}

func (s *sized) Size(context.Context, string) (state.Sizes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return state.Sizes{Device: s.size}, s.err
}

func (s *sized) set(size int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size, s.err = size, err
}

// A driver's OK is believed if the kernel shows its effect, or cannot tell.
func TestAnExpansionIsDoneWhenItShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := newFakeNode(t), newDisk()
		k := &sized{fakeNode: h, size: 1}
		begun := 0
		l := live(t, h, d, func(c *Config) {
			c.Kernel, c.BeforeExpand = k, func(context.Context, state.Volume) { begun++ }
		})
		l.up(h)
		l.SetPod(larger("a"))
		rest()
		s, _ := l.Pod("a")
		if v := s.Volumes[0]; v.Mounted || !strings.Contains(v.Retry.Error, "its device has 1 bytes, as before, 5 were requested") || v.Retry.Reason != state.NoEffect {
			t.Errorf("while nothing grows: %+v", v)
		}
		k.set(5, nil)
		mounted(t, l, "a")
		if h.took["Expand"] != begun || begun < 2 {
			t.Errorf("%d calls, %d were told of before", h.took["Expand"], begun)
		}
		k.set(5, errors.New("no"))
		p := larger("a")
		p.Volumes[0].SizeBytes = 50
		l.SetPod(p)
		rest()
		if got := d.records(t)["d^v"].SizeBytes; got != 50 {
			t.Errorf("size %d", got)
		}
	})
}

package mount

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestWatchTellsOfEachKindOfChange(t *testing.T) {
	defer goleak.VerifyNone(t)
	k, dir := New(), scratch(t)
	target := mkdir(t, dir, "target")
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := k.Watch(ctx)
	must(t, err)
	for _, change := range []struct {
		what string
		make func() error
	}{
		{"mount", func() error { return k.Bind(dir, target, BindOptions{}) }},
		{"remount", func() error { return k.Restrict(target, BindOptions{ReadOnly: true}) }},
		{"unmount", func() error { return k.Unmount(t.Context(), target) }},
	} {
		must(t, change.make())
		select {
		case <-changes:
		case <-time.After(2 * time.Minute): // against hanging, not a measurement
			t.Fatalf("nothing was told of a %s", change.what)
		}
	}
	cancel()
	for range changes { // until it is closed
	}
}

func TestWatchLeavesNoDescriptor(t *testing.T) {
	k := New()
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(names)
	}
	before := count()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		changes, err := k.Watch(ctx)
		must(t, err)
		cancel()
		for range changes {
		}
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

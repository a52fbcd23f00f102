package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.Write(b) }

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

// gauges returns the registry's series without labels.
func gauges(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		if m := f.GetMetric(); len(m) == 1 && m[0].GetGauge() != nil {
			all[f.GetName()] = m[0].GetGauge().GetValue()
		}
	}
	return all
}

// The node removes the empty directories of gone pods in which no process works. The others stay; each is logged once
// and counted.
//
// Items: O08.
func TestDirectoriesOfPodsThatAreGone(t *testing.T) {
	c, log, r := dirs(t), &lines{}, prometheus.NewRegistry()
	c.Logger, c.Metrics = slog.New(slog.NewTextHandler(log, nil)), r
	pod := func(uid, inside, file string) string {
		path := filepath.Join(c.Root, "pods", uid)
		if err := os.MkdirAll(filepath.Join(path, inside), 0o755); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(filepath.Join(path, inside, file), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	empty, data, young := pod("empty", "volumes/kubernetes.io~csi/pv", ""), pod("data", "volumes/kubernetes.io~empty-dir/x", "f"), pod("young", "volumes", "")
	for _, path := range []string{empty, data} {
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-2*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	_, stop := start(t, c)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for over := within(t); ; {
		got := gauges(t, r)
		if _, err := os.Stat(empty); err != nil && got["kubelet_orphan_pod_cleaned_volumes_errors"] == 1 {
			break
		}
		select {
		case <-look.C:
		case <-over.Done():
			t.Fatalf("never counted: %v", got)
		}
	}
	stop()
	for path, stays := range map[string]bool{empty: false, data: true, young: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, want it there: %v", path, err, stays)
		}
	}
	if told := strings.Count(log.String(), fmt.Sprintf("path=%s ", data)); told != 1 {
		t.Errorf("told %d times of %s:\n%s", told, data, log)
	}
}

// A start is over when the last source has synced and the manager shows its wishes, or after a short grace if a
// source stays silent. Tidying up begins a moment later.
func TestTidyingUpWaitsForTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, err := New(dirs(t))
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.UntilStarted(ctx); err != nil || over(n.Started()) {
			t.Errorf("told to end: over %v, %v", over(n.Started()), err)
		}
		if err := n.AfterStart(func(context.Context) error { return errors.New("begun") })(ctx); err != nil {
			t.Errorf("told to end: %v", err)
		}
		go func() { _ = n.UntilStarted(t.Context()) }()
		var begun atomic.Bool
		go func() {
			_ = n.AfterStart(func(context.Context) error { begun.Store(true); return nil })(t.Context())
		}()
		time.Sleep(source.Grace - 1)
		synctest.Wait()
		if over(n.Started()) {
			t.Error("over while a source is silent")
		}
		time.Sleep(source.TidyPause)
		synctest.Wait()
		if !over(n.Started()) || begun.Load() {
			t.Errorf("a source does not speak: over %v, begun %v", over(n.Started()), begun.Load())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !begun.Load() {
			t.Error("never begun")
		}
	})
}

func over(what <-chan struct{}) bool {
	select {
	case <-what:
		return true
	default:
		return false
	}
}

// When a start is over, the stored objects show, and the manager has compared them with the kernel.
func TestAStartIsOverWhenAllIsKnown(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	apply(t, n, scratchPod)
	stop()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-n.Started():
	case <-within(t).Done():
		t.Fatal("never over")
	}
	if p := n.manager.Pods(); len(p) != 1 || !p[0].Listed || !n.manager.ReconcilerStatesHasBeenSynced() {
		t.Errorf("over while it shows %+v", p)
	}
}

// A node that starts and finds nothing to change still makes the journal's spare copy.
func TestJournalIsCopiedOnceANodeHasStarted(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	settled(t, n) // the boot ID is stored
	stop()
	spare := filepath.Join(c.StateDir, "state.db.spare")
	if err := os.Remove(spare); err != nil {
		t.Fatal(err)
	}
	_, stop = start(t, c)
	defer stop()
	over := within(t)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for _, err := os.Stat(spare); err != nil; _, err = os.Stat(spare) {
		select {
		case <-look.C:
		case <-over.Done():
			t.Fatal("there is none while the node runs")
		}
	}
}

package node

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

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// lines is a log that may be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.Write(b) }

func (l *lines) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.buf.String() }

// gauges are the values of the registry's series without labels.
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

// Of the directories of pods that are gone those go that are empty and in which
// nobody works. The others stay, are told of once, and are counted.
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
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-2*leftoverIdle)); err != nil {
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

// What only tidies up begins when the last source has spoken, and soon where one
// does not speak.
func TestTidyingUpWaitsForTheSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{silent: map[string]bool{"api": true, "file": true}}
		speaks := func(source string) {
			n.mu.Lock()
			delete(n.silent, source)
			n.mu.Unlock()
			n.changed.send()
			synctest.Wait()
		}
		begins := func(ctx context.Context) (begun *atomic.Bool, ended chan error) {
			begun, ended = new(atomic.Bool), make(chan error, 1)
			go func() { ended <- n.afterSources(func(context.Context) error { begun.Store(true); return nil })(ctx) }()
			synctest.Wait()
			return begun, ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped, ended := begins(ctx)
		cancel()
		if err := <-ended; stopped.Load() || err != nil {
			t.Errorf("told to end: begun %v, %v", stopped.Load(), err)
		}
		late, _ := begins(t.Context())
		time.Sleep(startGrace - 1)
		synctest.Wait()
		if late.Load() {
			t.Error("begun while sources are silent")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !late.Load() {
			t.Error("never begun, since a source does not speak")
		}
		soon, _ := begins(t.Context())
		if speaks("file"); soon.Load() {
			t.Error("begun while one source is silent")
		}
		if speaks("api"); !soon.Load() {
			t.Error("not begun although all have spoken")
		}
	})
}

// waitedFor is a context that calls begin when somebody first waits for its end.
type waitedFor struct {
	context.Context
	begin func()
}

func (w waitedFor) Done() <-chan struct{} {
	w.begin()
	return w.Context.Done()
}

// What only tidies up begins when the manager shows what the sources said.
func TestTidyingUpWaitsForTheManager(t *testing.T) {
	n, err := New(dirs(t))
	if err != nil {
		t.Fatal(err)
	}
	clear(n.silent)
	n.manager.SetPod(state.PodWant{Pod: state.Pod{UID: "u", Name: "web"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	run := sync.OnceFunc(func() { go func() { ended <- n.manager.Run(ctx) }() })
	defer func() {
		cancel()
		run() // where nobody has waited
		if err := errors.Join(<-ended, n.Close()); err != nil {
			t.Error(err)
		}
	}()
	shown := 0
	err = n.afterStart(func(context.Context) error {
		shown = len(n.manager.Pods())
		return nil
	})(waitedFor{ctx, run})
	if err != nil || shown != 1 {
		t.Errorf("begun while %d pods are shown: %v", shown, err)
	}
}

// A node that starts and finds nothing to change makes the journal's spare copy
// all the same.
func TestJournalIsCopiedOnceANodeHasStarted(t *testing.T) {
	c := dirs(t)
	n, stop := start(t, c)
	settled(t, n) // the boot id is stored
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

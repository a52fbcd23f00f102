package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func aPod(name string) manager.PodStatus {
	return manager.PodStatus{Pod: state.Pod{UID: state.PodUID(name), Namespace: "n", Name: name}}
}

// TestWhoWaitsIsWokenByItsOwnPodAlone: a change of one pod wakes no waiter for another, and the list is dropped with
// its last waiter.
func TestWhoWaitsIsWokenByItsOwnPodAlone(t *testing.T) {
	b := newBackend(Facts{Pods: []manager.PodStatus{aPod("a"), aPod("b")}})
	feed := b.FollowPods().(*podFeed)
	l := podList{follow: func() PodFeed { return feed }}
	leave, leaveB, leaveC := l.join("n", "a"), l.join("n", "b"), l.join("n", "c")
	look := func(name string, listed, ready bool) <-chan struct{} {
		t.Helper()
		pods, next := l.named("n", name)
		if len(pods) > 1 || len(pods) == 1 != listed || listed && (pods[0].Pod.Name != name || pods[0].Ready != ready) {
			t.Errorf("pods named %s: %+v", name, pods)
		}
		return next
	}
	woken := func(what string, next <-chan struct{}, want bool) {
		t.Helper()
		select {
		case <-next:
			if !want {
				t.Errorf("%s: woken", what)
			}
		default:
			if want {
				<-next // the wake-up is on its way
			}
		}
	}
	nextA, nextB, nextC := look("a", true, false), look("b", true, false), look("c", false, false)
	b.set(func(f *Facts) {
		ready := aPod("b")
		ready.Ready = true
		f.Pods = []manager.PodStatus{aPod("a"), ready}
	})
	woken("b became ready", nextB, true)
	woken("a, while b became ready", nextA, false)
	nextB = look("b", true, true)
	b.set(func(f *Facts) { f.Pods = []manager.PodStatus{aPod("b"), aPod("c")} })
	woken("a left", nextA, true)
	woken("b changed", nextB, true)
	woken("c came", nextC, true)
	look("a", false, false)
	look("c", true, false)
	leave()
	look("b", true, false)
	for range 10 { // names that no pod has, and pods that have gone
		l.join("n", fmt.Sprint("gone-", len(l.byName)))()
	}
	if len(l.byName) != 2 {
		t.Errorf("the list has %d names for two pods and two requests", len(l.byName))
	}
	leaveB()
	leaveC()
	feed.mu.Lock()
	defer feed.mu.Unlock()
	if l.byName != nil || !feed.closed {
		t.Error("the list is kept without a waiter")
	}
}

// BenchmarkWatchPods sends one change among 4,000 pods to a watch.
func BenchmarkWatchPods(b *testing.B) {
	for _, pods := range []int{10, 4000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			last, one := map[state.PodUID][]byte{}, &oneOf{}
			for i := range pods {
				one.changed = append(one.changed, aPod(fmt.Sprint(i)))
			}
			if _, err := changesOf(one, last); err != nil {
				b.Fatal(err)
			}
			one.changed = one.changed[:1]
			for b.Loop() {
				one.changed[0].Ready = !one.changed[0].Ready
				if lines, err := changesOf(one, last); err != nil || len(lines) == 0 {
					b.Fatal(string(lines), err)
				}
			}
		})
	}
}

// oneOf reports the same changed pods each time.
type oneOf struct {
	PodFeed
	changed []manager.PodStatus
}

func (o *oneOf) Take() ([]manager.PodStatus, []state.Pod) { return o.changed, nil }

// A watch of a daemon that just started sends the pods once, when the daemon knows the stored objects, and waits for
// that only for a short time.
func TestAWatchOfADaemonThatStartsWaits(t *testing.T) {
	for _, known := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, started := newBackend(Facts{Pods: []manager.PodStatus{aPod("a")}}), make(chan struct{})
			s := &Server{cfg: Config{FollowPods: b.FollowPods, Started: started, Logger: slog.New(slog.DiscardHandler)}, made: time.Now()}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			answer := httptest.NewRecorder()
			go s.listPods(answer, httptest.NewRequestWithContext(ctx, "GET", "/v1/pods?watch=true", nil))
			time.Sleep(startPatience - 1)
			synctest.Wait()
			if got := answer.Body.String(); got != "" {
				t.Errorf("told before the start was over: %s", got)
			}
			b.set(func(f *Facts) { f.Pods[0].Listed = true })
			if known {
				close(started)
			} else {
				time.Sleep(time.Nanosecond)
			}
			synctest.Wait()
			if got := answer.Body.String(); strings.Count(got, `"type":"set"`) != 1 || !strings.Contains(got, `"listed":true`) {
				t.Errorf("known %v: told %s", known, got)
			}
		})
	}
}

// BenchmarkRead reads a node with 1,000 pods as a client does.
func BenchmarkRead(b *testing.B) {
	f := Facts{}
	for i := range 1000 {
		p, v := aPod(fmt.Sprintf("pod-%d", i)), state.SharedID("d.example", fmt.Sprint(i))
		p.Listed, p.Ready = true, true
		p.Volumes = []manager.PodVolumeStatus{{Names: []string{"data"}, ID: v, Mounted: true, Phase: state.Present, HostPath: "/var/lib/kubelet/pods/x"}}
		f.Pods = append(f.Pods, p)
		f.Volumes = append(f.Volumes, manager.VolumeStatus{Volume: state.Volume{ID: v}, Wanted: []state.PodUID{p.Pod.UID}})
	}
	backend := newBackend(f)
	s := &Server{cfg: Config{
		Volumes: backend, FollowPods: backend.FollowPods, Objects: backend, Claims: backend, Health: backend, Trace: backend,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}, pods: podList{follow: backend.FollowPods}}
	api := s.apiHandler()
	for _, path := range []string{"/v1/pods", "/v1/pods/n/pod-500", "/v1/volumes", "/v1/pods/n/pod-500/wait?for=mounted&timeout=0s"} {
		b.Run("path="+path, func(b *testing.B) {
			ctx := context.WithValue(b.Context(), peerKey{}, peer{})
			for b.Loop() {
				w := httptest.NewRecorder()
				api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", path, nil))
				if w.Code != 200 {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}

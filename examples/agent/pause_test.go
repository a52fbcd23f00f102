package main

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A step that fails pokes its worker by what it writes and leaves behind. It is tried again after its pause, and at
// once when the pod's object asks for something else.
func TestAFailedStepIsTriedOncePerPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, w := &agent{}, &worker{poke: make(chan struct{}, 1)}
		was := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "a"}}}}
		is := was.DeepCopy()
		var mu sync.Mutex // guards is and pokes
		asks := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return asksOther(was, is)
		}
		pokes, tries := 0, 0
		try := func() { // as the status that it writes comes back, again and again
			tries++
			for range 5 {
				time.AfterFunc(100*time.Millisecond, func() {
					mu.Lock()
					defer mu.Unlock()
					pokes++
					is.Status.Message = time.Now().String()
					select {
					case w.poke <- struct{}{}:
					default:
					}
				})
			}
		}
		began := time.Now()
		for time.Since(began) < 10*time.Second && tries < 1000 {
			try()
			if !a.waited(t.Context(), w, firstRetry, asks) {
				t.Fatal("the wait ended early")
			}
		}
		synctest.Wait()
		mu.Lock()
		if tries != 10 || pokes < tries {
			t.Errorf("%d tries in 10 s with %d pokes, want 10 tries", tries, pokes)
		}
		is.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		mu.Unlock()
		began = time.Now()
		w.poke <- struct{}{}
		if !a.waited(t.Context(), w, maxRetry, asks) || time.Since(began) != 0 {
			t.Error("the deletion of the pod does not end the pause")
		}
	})
}

func TestWhatAsksForSomethingElse(t *testing.T) {
	pod := func(image string, deleted bool, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
		p.Status.Phase = phase
		if deleted {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return p
	}
	was := pod("a", false, corev1.PodPending)
	for name, tc := range map[string]struct {
		is   *corev1.Pod
		want bool
	}{
		"the same": {pod("a", false, corev1.PodPending), false}, "another status": {pod("a", false, corev1.PodRunning), false},
		"another image": {pod("b", false, corev1.PodPending), true}, "deleted": {pod("a", true, corev1.PodPending), true},
		"over": {pod("a", false, corev1.PodFailed), true}, "gone": {nil, true},
	} {
		if got := asksOther(was, tc.is); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

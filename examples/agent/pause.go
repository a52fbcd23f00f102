package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// waited waits for a time, or until the worker is poked and ends reports that the wait is over.
// It returns false when ctx ends.
func (a *agent) waited(ctx context.Context, w *worker, d time.Duration, ends func() bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-w.poke:
			if ends() {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// anything ends a wait at every poke.
func anything() bool { return true }

// since returns a function that reports whether the pod's object asks for something else than
// now, or its volumes do. A pause after a failure ends for nothing less: the step that failed pokes
// the worker too, by the status that it writes and the container that it leaves.
func (a *agent) since(uid types.UID) func() bool {
	was, _ := a.pod(uid)
	volumes := a.volumes.of(uid)
	return func() bool {
		is, _ := a.pod(uid)
		now := a.volumes.of(uid)
		return now.ready != volumes.ready || now.mounted != volumes.mounted || asksOther(was, is)
	}
}

// asksOther reports whether two objects of a pod ask for different things; nil is no object.
func asksOther(was, is *corev1.Pod) bool {
	if was == nil || is == nil {
		return was != is
	}
	return !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !is.DeletionTimestamp.Equal(was.DeletionTimestamp) ||
		over(is.Status.Phase) != over(was.Status.Phase)
}

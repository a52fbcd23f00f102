package server

import (
	"testing"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// counted counts how often all pods are listed.
type counted struct {
	*backend
	lists int
}

func (c *counted) Pods() []manager.PodStatus {
	c.lists++
	return c.backend.Pods()
}

// TestAllThatWaitShareOneListOfPods: a change costs one list, however many
// wait; nothing is kept when nobody does.
func TestAllThatWaitShareOneListOfPods(t *testing.T) {
	pod := func(name string) manager.PodStatus {
		return manager.PodStatus{Pod: state.Pod{UID: state.PodUID(name), Namespace: "n", Name: name}}
	}
	c := &counted{backend: newBackend(Facts{Pods: []manager.PodStatus{pod("a"), pod("b")}})}
	l := podList{volumes: c}
	var leave []func()
	look := func(want string) {
		t.Helper()
		for range 50 {
			pods, next := l.named("n", want)
			if len(pods) != 1 || pods[0].Pod.Name != want || next == nil {
				t.Fatalf("pods named %s: %+v", want, pods)
			}
		}
	}
	for range 50 {
		leave = append(leave, l.join())
	}
	look("b")
	if c.lists != 1 {
		t.Errorf("50 looks took %d lists", c.lists)
	}
	_, next := l.named("n", "b")
	c.set(func(f *Facts) { f.Pods = append(f.Pods, pod("c")) })
	<-next
	look("c")
	if c.lists != 2 {
		t.Errorf("with a change between, 100 looks took %d lists", c.lists)
	}
	for _, leave := range leave {
		leave()
	}
	if l.byName != nil {
		t.Error("the list is kept, and nobody waits")
	}
	if pods, _ := l.named("n", "nobody"); len(pods) != 0 || c.lists != 3 {
		t.Errorf("%+v after %d lists", pods, c.lists)
	}
}

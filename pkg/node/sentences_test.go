package node

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// failure is a scene of the golden explanations: a call that fails, and the
// sentence that says so.
type failure struct{ name, step, sentence string }

// failures reads those of calls that this node makes in cluster mode.
func failures(t *testing.T) map[string]failure {
	t.Helper()
	files, err := filepath.Glob("../../test/faults/testdata/explain/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]failure{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f := failure{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for line := range strings.Lines(string(text)) {
			switch label, rest, _ := strings.Cut(strings.TrimSpace(line), " "); {
			case label == "step":
				f.step, _, _ = strings.Cut(strings.TrimSpace(rest), ",")
			case label == "because" && f.sentence == "":
				f.sentence = strings.TrimSpace(rest)
			}
		}
		call, _, _ := strings.Cut(f.sentence, " ")
		if slices.Contains([]string{"Stage", "Publish", "Unpublish"}, f.step) && strings.HasPrefix(call, "Node") {
			all[f.name] = f
		}
	}
	return all
}

// answer is the error that a sentence is made from: the one before, if it names
// one, at the first attempt.
func (f failure) answer(first bool) error {
	call, rest, _ := strings.Cut(f.sentence, " ")
	rest, before, _ := strings.Cut(rest, "; before that: ")
	if first && before != "" {
		rest = "answered " + before
	}
	code, text, answered := strings.Cut(strings.TrimPrefix(rest, "answered "), ": ")
	if !strings.HasPrefix(rest, "answered ") || !answered {
		code, text = "", strings.TrimPrefix(rest, "failed: ")
	}
	return &state.CallError{Outcome: state.Failed, Call: call, Code: code, Err: errors.New(text)}
}

// scripted is a driver that fails as the golden explanations have it.
type scripted struct {
	manager.Driver
	failures map[string]failure // by handle
	mu       sync.Mutex
	asked    map[string]bool
}

func (d *scripted) fails(v state.Volume, step string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.failures[v.Spec.Handle]
	if f.step != step {
		return nil
	}
	first := !d.asked[f.name]
	d.asked[f.name] = true
	return f.answer(first)
}

func (d *scripted) Stage(_ context.Context, v state.Volume) error {
	return d.fails(v, "Stage")
}

func (d *scripted) Publish(_ context.Context, v state.Volume, pod state.PodUID) error {
	if err := d.fails(v, "Publish"); err != nil {
		return err
	}
	return os.MkdirAll(v.Mounts[pod].Target, 0o755)
}

func (d *scripted) Unpublish(_ context.Context, v state.Volume, _ state.PodUID) error {
	return d.fails(v, "Unpublish")
}

// What fails is told in an Event of the API server in the very words of the golden
// explanation: those that the command line, the API and the status page have.
//
// Faults: A125.
func TestEventsHaveTheWordsOfTheExplanations(t *testing.T) {
	all, api, c := failures(t), fakeapi.New(), dirs(t)
	if len(all) < 20 {
		t.Fatalf("only %d failures are explained: %v", len(all), all)
	}
	_, _, _, driver := ofCluster()
	stages := driver.DeepCopy()
	stages.Name = "stages.example"
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, driver, stages)
	for name, f := range all {
		pod, claim, pv, _ := ofCluster()
		pod.Name, pod.UID, claim.Name, claim.UID, pv.Name = name, types.UID("pod-"+name), name, types.UID(name), name
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name
		claim.Spec.VolumeName, claim.Status.Capacity = name, claim.Spec.Resources.Requests
		claim.Status.AllocatedResourceStatuses = nil
		pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID, pv.Spec.CSI.VolumeHandle = name, types.UID(name), name
		if f.step == "Stage" {
			pv.Spec.CSI.Driver = stages.Name
		}
		api.Put(claim, pv, pod)
	}
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	n, _ := start(t, c)
	d := &scripted{failures: maps.Clone(all), asked: map[string]bool{}}
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example"}, d)
	n.manager.DriverUp(manager.DriverInfo{Name: "stages.example", Stage: true}, d)
	core, _ := api.Clients(nil)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	deleted := map[string]bool{}
	for over := within(t); len(all) > 0; {
		list, err := core.Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			name := e.InvolvedObject.Name
			f, ok := all[name]
			switch {
			case ok && e.Type == corev1.EventTypeWarning && (e.Message == server.Told("data", f.sentence) || e.Message == server.Told(name, f.sentence)):
				delete(all, name)
			case ok && f.step == "Unpublish" && e.Reason == reasonMounted && !deleted[name]:
				deleted[name] = true
				api.Delete("pods", "default/"+name)
			}
		}
		select {
		case <-look.C:
		case <-over.Done():
			t.Fatalf("not told: %v; told: %v", all, list.Items)
		}
	}
}

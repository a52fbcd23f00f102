package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server/ui"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// telling says how a scene of the golden explanations reaches a cluster's users.
type telling struct {
	// kind and reason are those of the event; without a reason there is no event, and why says why.
	kind, reason, why string
	// build makes the scene if no failing call makes it.
	build func(w *stage, name string)
}

const onPod, onClaim = resolve.KindPod, resolve.KindClaim

// tellings has an entry for each golden explanation.
var tellings = map[string]telling{
	"attach-internal":               {kind: onPod, reason: "FailedAttachVolume"},
	"attach-permission-denied":      {kind: onPod, reason: "FailedAttachVolume"},
	"attach-resource-exhausted":     {kind: onPod, reason: "FailedAttachVolume"},
	"detach-internal":               {kind: onClaim, reason: "FailedDetachVolume"},
	"expand-in-use":                 {kind: onClaim, reason: "VolumeResizeFailed"}, // and on the pod, like the next
	"expand-out-of-range":           {kind: onPod, reason: "VolumeResizeFailed"},
	"no-claim":                      {kind: onPod, reason: "FailedMount", build: (*stage).noClaim},
	"no-driver":                     {kind: onPod, reason: "FailedMount", build: (*stage).noDriver},
	"no-inline":                     {kind: onPod, reason: "FailedMount", build: (*stage).noInline},
	"no-mode":                       {kind: onPod, reason: "FailedMount", build: (*stage).noMode},
	"no-turn":                       {kind: onPod, reason: "FailedMount", build: (*stage).noTurn},
	"publish-deadline-exceeded":     {kind: onPod, reason: "FailedMount"},
	"publish-garbage":               {kind: onPod, reason: "FailedMount"},
	"publish-halfway":               {kind: onPod, reason: "FailedMount"},
	"publish-lies":                  {kind: onPod, reason: "FailedMount"},
	"publish-lies-elsewhere":        {kind: onPod, reason: "FailedMount"},
	"publish-lies-with-a-directory": {kind: onPod, reason: "FailedMount"},
	"publish-lies-with-a-link":      {kind: onPod, reason: "FailedMount"},
	"publish-permission-denied":     {kind: onPod, reason: "FailedMount"},
	"publish-too-much":              {kind: onPod, reason: "FailedMount"},
	"stage-aborted":                 {kind: onPod, reason: "FailedMount"},
	"stage-already-exists":          {kind: onPod, reason: "FailedMount"},
	"stage-data-loss":               {kind: onPod, reason: "FailedMount"},
	"stage-failed-precondition":     {kind: onPod, reason: "FailedMount"},
	"stage-hangs":                   {why: "a call that is in flight has no cause yet: its answer or its deadline is told"},
	"stage-internal-with-effect":    {kind: onPod, reason: "FailedMount"},
	"stage-invalid-argument":        {kind: onPod, reason: "FailedMount"},
	"stage-not-found":               {kind: onPod, reason: "FailedMount"},
	"stage-out-of-range":            {kind: onPod, reason: "FailedMount"},
	"stage-unauthenticated":         {kind: onPod, reason: "FailedMount"},
	"stage-unavailable":             {kind: onPod, reason: "FailedMount"},
	"stage-unimplemented":           {kind: onPod, reason: "FailedMount"},
	"stage-unknown-code":            {kind: onPod, reason: "FailedMount"},
	"unpublish-internal":            {kind: onPod, reason: "FailedUnMount"},
	"unpublish-lies":                {kind: onPod, reason: "FailedUnMount"},
	"unstage-busy":                  {kind: onClaim, reason: "FailedUnMount"},
	"unstage-lies":                  {kind: onClaim, reason: "FailedUnMount"},
}

// goldenScene is the step and the first cause of a golden explanation.
type goldenScene struct{ name, step, sentence string }

func goldenScenes(t *testing.T) map[string]goldenScene {
	t.Helper()
	files, err := filepath.Glob("../../test/faults/testdata/explain/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]goldenScene{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		g := goldenScene{name: strings.TrimSuffix(filepath.Base(file), ".txt")}
		for line := range strings.Lines(string(text)) {
			switch label, rest, _ := strings.Cut(strings.TrimSpace(line), " "); {
			case label == "step":
				g.step, _, _ = strings.Cut(strings.TrimSpace(rest), ",")
			case label == "because" && g.sentence == "":
				g.sentence = strings.ReplaceAll(strings.TrimSpace(rest), "volume pvc-UID", "volume "+g.name)
			}
		}
		all[g.name] = g
	}
	return all
}

// answer returns the error from which the sentence is made: at the first attempt the earlier error, if the sentence
// names one.
func (g goldenScene) answer(first bool) *state.CallError {
	call, rest, _ := strings.Cut(g.sentence, " ")
	rest, before, _ := strings.Cut(rest, "; before that: ")
	if first && before != "" {
		rest = "answered " + before
	}
	code, text, answered := strings.Cut(strings.TrimPrefix(rest, "answered "), ": ")
	if !strings.HasPrefix(rest, "answered ") || !answered {
		code, text = "", strings.TrimPrefix(rest, "failed: ")
	}
	e := &state.CallError{Outcome: state.Failed, Call: call, Code: code, Err: errors.New(text)}
	if g.step == plan.Expand.String() {
		e.Outcome = state.Final
	}
	return e
}

// scripted is a driver that fails as the golden explanations say.
type scripted struct {
	scenes map[string]goldenScene // by handle
	mu     sync.Mutex
	asked  map[string]bool
}

func (d *scripted) fails(handle, step string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := d.scenes[handle]
	if g.step != step {
		return nil
	}
	first := !d.asked[g.name]
	d.asked[g.name] = true
	return g.answer(first)
}

func (d *scripted) Stage(ctx context.Context, v state.Volume) error {
	if v.Spec.Handle == "stage-hangs" {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return errors.Join(d.fails(v.Spec.Handle, "Stage"), os.MkdirAll(v.Spec.StagePath, 0o755))
}

func (d *scripted) Publish(_ context.Context, v state.Volume, pod state.PodUID) (time.Time, error) {
	if err := d.fails(v.Spec.Handle, "Publish"); err != nil {
		return time.Time{}, err
	}
	return time.Time{}, os.MkdirAll(v.Mounts[pod].Target, 0o755)
}

func (d *scripted) Unpublish(_ context.Context, v state.Volume, pod state.PodUID) error {
	if err := d.fails(v.Spec.Handle, "Unpublish"); err != nil {
		return err
	}
	return os.RemoveAll(v.Mounts[pod].Target)
}

func (d *scripted) Unstage(_ context.Context, v state.Volume) error {
	if err := d.fails(v.Spec.Handle, "Unstage"); err != nil {
		return err
	}
	return os.RemoveAll(v.Spec.StagePath)
}

func (d *scripted) Expand(_ context.Context, v state.Volume, _ state.PodUID, bytes int64) (int64, error) {
	return bytes, d.fails(v.Spec.Handle, "Expand")
}

// Invoke serves the Controller's calls.
func (d *scripted) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	var err error
	switch q := args.(type) {
	case *csi.GetPluginCapabilitiesRequest:
		reply.(*csi.GetPluginCapabilitiesResponse).Capabilities = []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{
			Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE},
		}}}
	case *csi.ControllerPublishVolumeRequest:
		err = d.fails(q.VolumeId, "Attach")
	case *csi.ControllerUnpublishVolumeRequest:
		err = d.fails(q.VolumeId, "Detach")
	}
	if answer, failed := errors.AsType[*state.CallError](err); failed {
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			if code.String() == answer.Code {
				return status.Error(code, answer.Err.Error())
			}
		}
	}
	return err
}

func (d *scripted) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

// stage is a node of a cluster that plays the scenes, with its observers.
type stage struct {
	t    *testing.T
	node *Node
	api  *fakeapi.Server
	own  *client.Client // a client of the node API
}

func newStage(t *testing.T, scenes map[string]goldenScene) *stage {
	c := dirs(t)
	api := fakeapi.New()
	no := false
	api.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}})
	for _, name := range []string{"d.example", "stages.example"} {
		api.Put(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}})
	}
	c.Cluster = &rest.Config{Host: "http://api.test", Transport: api, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c.waitPatience = time.Second
	n, _ := start(t, c)
	d := &scripted{scenes: scenes, asked: map[string]bool{}}
	n.manager.DriverUp(manager.DriverInfo{Name: "d.example", Expand: true}, d)
	n.manager.DriverUp(manager.DriverInfo{Name: "stages.example", Stage: true}, d)
	n.manager.DriverUp(manager.DriverInfo{Name: "attaches.example", Attach: true}, d)
	n.controller.DriverUp(controller.Driver{Name: "attaches.example", Conn: d, NodeID: "n1"})
	socket := filepath.Join(c.RuntimeDir, "sock")
	s, err := server.New(t.Context(), server.Config{
		Socket: socket, Volumes: n.Manager(), FollowPods: func() server.PodFeed { return n.Manager().FollowPods() },
		Objects: n, Claims: n.Views(), Health: n.Views(), Trace: n, Logger: c.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	own := client.New(socket)
	t.Cleanup(func() {
		own.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &stage{t: t, node: n, api: api, own: own}
}

// put puts a pod with a claim, both with the scene's name, and a volume; change may adapt them to the scene.
func (w *stage) put(name, driver string, change func(*corev1.Pod, *corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) {
	pod, claim, pv, _ := ofCluster()
	pod.Name, pod.UID, claim.Name, claim.UID, pv.Name = name, types.UID("pod-"+name), name, types.UID(name), name
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name
	claim.Spec.VolumeName = name
	if !strings.HasPrefix(name, "expand-") {
		claim.Status.Capacity, claim.Status.AllocatedResourceStatuses = claim.Spec.Resources.Requests, nil
	}
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = name, types.UID(name)
	pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.Driver = name, driver
	if change != nil {
		change(pod, claim, pv)
	}
	w.api.Put(claim, pv, pod)
}

// attached makes the cluster say that a volume is attached to the node.
func (w *stage) attached(driver state.DriverName, handle string) {
	w.api.Put(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: resolve.AttachmentKey(driver, handle, "n1").Name, UID: types.UID("va-" + handle)},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: string(driver), NodeName: "n1"},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	})
	n := &corev1.Node{}
	if !w.api.Get("nodes", "n1", n) {
		w.t.Fatal("no node")
	}
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + string(state.SharedID(driver, handle)))
	n.Status.VolumesAttached = append(n.Status.VolumesAttached, corev1.AttachedVolume{Name: name})
	w.api.Put(n)
}

func (w *stage) noClaim(name string) {
	pod, _, _, _ := ofCluster()
	pod.Name, pod.UID = name, types.UID("pod-"+name)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "nowhere"
	w.api.Put(pod)
}

func (w *stage) noDriver(name string) {
	w.attached("absent.faults.dev", name)
	w.put(name, "absent.faults.dev", nil)
}

func (w *stage) noInline(name string) {
	pod, _, _, _ := ofCluster()
	pod.Name, pod.UID = name, types.UID("pod-"+name)
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "absent.faults.dev"}}
	w.api.Put(pod)
}

func (w *stage) noMode(name string) {
	w.put(name, "d.example", func(pod *corev1.Pod, _ *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
		c := &pod.Spec.Containers[0]
		c.VolumeMounts, c.VolumeDevices = nil, []corev1.VolumeDevice{{Name: "data", DevicePath: "/dev/data"}}
	})
}

func (w *stage) noTurn(name string) {
	w.put(name, "d.example", func(pod *corev1.Pod, _ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		pod.Name, pod.UID = "has-it", "pod-has-it"
	})
	if err := w.node.Manager().WaitForAttachAndMount(within(w.t), "pod-has-it"); err != nil {
		w.t.Fatal(err)
	}
	pod, _, _, _ := ofCluster()
	pod.Name, pod.UID = name, types.UID("pod-"+name)
	pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = name
	w.api.Put(pod)
}

// play begins a scene.
func (w *stage) play(g goldenScene) {
	if build := tellings[g.name].build; build != nil {
		build(w, g.name)
		return
	}
	driver := map[string]string{"Stage": "stages.example", "Unstage": "stages.example", "Attach": "attaches.example", "Detach": "attaches.example"}[g.step]
	if driver == "attaches.example" {
		w.attached("attaches.example", g.name)
	}
	if driver == "" {
		driver = "d.example"
	}
	w.put(g.name, driver, nil)
	if slices.Contains([]string{"Unpublish", "Unstage", "Detach"}, g.step) {
		if err := w.node.Manager().WaitForAttachAndMount(within(w.t), state.PodUID("pod-"+g.name)); err != nil {
			w.t.Fatal(err)
		}
		w.api.Delete("pods", "default/"+g.name)
	}
}

// events lists the events that the server has.
func (w *stage) events() []corev1.Event {
	core, _ := w.api.Clients(nil)
	list, err := core.Events("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// isTold reports whether the event of a scene is among events.
func isTold(g goldenScene, events []corev1.Event) bool {
	want := tellings[g.name]
	return slices.ContainsFunc(events, func(e corev1.Event) bool {
		uid := types.UID("pod-" + g.name)
		text := "volume data: " + g.sentence
		if want.kind == onClaim {
			uid, text = types.UID(g.name), "volume "+g.name+": "+g.sentence
		}
		return e.InvolvedObject.Kind == want.kind && e.InvolvedObject.UID == uid && e.Reason == want.reason && e.Type == corev1.EventTypeWarning && e.Message == text
	})
}

// isExplained reports whether the node API explains the scene by its sentence.
func (w *stage) isExplained(g goldenScene) bool {
	kind := "pod"
	if g.step == "Unstage" || g.step == "Detach" {
		kind = "volume"
	}
	e, err := w.own.Explain(w.t.Context(), kind, "default/"+g.name)
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.ContainsFunc(e.Lines, func(l server.Line) bool { return l.Label == "because" && l.Text == g.sentence })
}

// isListed reports whether a list of the node API has the sentence: for the pod's volume, for its driver, or for a
// volume without a pod.
func (w *stage) isListed(g goldenScene) bool {
	pods, errP := w.own.Pods(w.t.Context())
	volumes, errV := w.own.Volumes(w.t.Context())
	drivers, errD := w.own.Drivers(w.t.Context())
	if err := errors.Join(errP, errV, errD); err != nil {
		w.t.Fatal(err)
	}
	var told []string
	driver := state.DriverName("")
	for _, p := range pods {
		if p.Pod.Name == g.name && len(p.Volumes) == 1 {
			v := p.Volumes[0]
			driver, told = v.Driver, append(told, v.BlockedBy, v.Retry.Failure())
		}
	}
	for _, v := range volumes {
		if len(told) == 0 && v.Volume.Spec.Claim == "default/"+g.name {
			told = append(told, v.Held.Reason, v.Volume.Stage.Retry().Failure(), v.Volume.Attach.Retry().Failure())
		}
	}
	for _, d := range drivers {
		if d.Name == driver && !d.Up {
			told = append(told, d.Problem)
		}
	}
	return slices.Contains(told, g.sentence)
}

// page returns the rows of the status page, from the first message of its stream.
func (w *stage) page() (rows []ui.Row) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/ui/rows", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	answer, err := w.own.Transport().RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		w.t.Fatal(err)
	}
	var first struct{ Set []ui.Row }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &first); err != nil {
		w.t.Fatal(err)
	}
	return first.Set
}

// driversWords matches what a driver says in addition to a code.
var driversWords = regexp.MustCompile(`( answered [^:; ]+): [^;]*|(before that: \w+): .*`)

// isShown reports whether the page has the scene's sentence, without the driver's words,
// in the volume's row.
func isShown(g goldenScene, rows []ui.Row) bool {
	said := driversWords.ReplaceAllString(g.sentence, "$1$2")
	return slices.ContainsFunc(rows, func(r ui.Row) bool {
		left := r.Kind == "problem" && strings.Contains(r.Name, " of claim default/"+g.name+",")
		return r.Why == said && (left || r.Of == "pod pod-"+g.name)
	})
}

// If a volume cannot be mounted, or removed afterwards, the golden explanation's sentence appears in the node API's
// explanations and lists, on the status page (without the driver's words), and in an Event on the pod, or on the
// claim if no pod is left.
//
// Items: K01, N-29.
// Faults: A125.
func TestEveryoneSaysWhatTheExplanationsSay(t *testing.T) {
	all := goldenScenes(t)
	if got, want := slices.Sorted(maps.Keys(tellings)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("told are %q, and explained %q: each has to be in the table, and if there is no event, why", got, want)
	}
	failing := maps.Clone(all)
	maps.DeleteFunc(failing, func(name string, _ goldenScene) bool { return tellings[name].build != nil })
	w := newStage(t, failing)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w.play(all[name])
	}
	missing := map[string]func(goldenScene) bool{}
	var events []corev1.Event
	var rows []ui.Row
	for name, g := range all {
		switch {
		case g.sentence == "" && tellings[name].why == "" || g.sentence != "" && tellings[name].reason == "":
			t.Errorf("%s: the golden explanation has the cause %q, and the table %+v", name, g.sentence, tellings[name])
		case g.sentence != "":
			missing[name+": event"] = func(g goldenScene) bool { return isTold(g, events) }
			missing[name+": explanation"] = w.isExplained
			missing[name+": lists of the API"] = w.isListed
			missing[name+": page"] = func(g goldenScene) bool { return isShown(g, rows) }
		}
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for over := within(t); len(missing) > 0; {
		events, rows = w.events(), w.page()
		for what, is := range missing {
			if name, _, _ := strings.Cut(what, ":"); is(all[name]) {
				delete(missing, what)
			}
		}
		select {
		case <-look.C:
		case <-over.Done():
			for _, e := range events {
				t.Log(e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
			}
			t.Fatalf("not said: %q", slices.Sorted(maps.Keys(missing)))
		}
	}
	for _, e := range events {
		if want := tellings[strings.TrimPrefix(string(e.InvolvedObject.UID), "pod-")]; want.why != "" && e.Type == corev1.EventTypeWarning {
			t.Error(fmt.Errorf("%s: event %q, although %s", e.InvolvedObject.Name, e.Message, want.why))
		}
	}
}

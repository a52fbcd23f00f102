package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server/ui"
	csistrict "github.com/csi-volmgr/csi-volmgr/test/csi-strict"
	"github.com/csi-volmgr/csi-volmgr/test/harness"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// scene is one way for a volume to fail. The golden file with its name has the explanation.
type scene struct {
	name  string
	fault csistrict.Fault // in the calls for the scene's own volume
	// before is the code of the answer to the first of these calls; 0 means fault.Code.
	before codes.Code
	// made: the test deletes the pod after its volume is mounted, and the removal fails.
	made bool
	// grown: the test asks for more space after the volume is mounted.
	grown bool
	// docs replace the scene's claim and pod. The pod has the scene's name.
	docs []string
	// kind and of name the object to explain; "" is the scene's pod.
	kind, of string
	verdict  string
	// word is in the explanation once it is about the scene's failure.
	word string
}

// fails returns a scene in which the driver answers a call with a code.
func fails(name, call string, code codes.Code, effect csistrict.Effect) scene {
	return scene{
		name: name, verdict: server.Stuck, word: "the array is on fire",
		fault: csistrict.Fault{Call: call, Code: uint32(code), Effect: effect, Message: "the array is on fire"},
	}
}

func (s scene) removing() scene { s.made = true; return s }
func (s scene) ofVolume() scene { s.kind, s.of = "volume", "default/"+s.name; return s }
func lies(name, call string, effect csistrict.Effect, path string) scene {
	return scene{
		name: name, verdict: server.Stuck, word: "answered OK without the effect",
		fault: csistrict.Fault{Call: call, Effect: effect, Path: path},
	}
}

const (
	attach, detach, stage, unstage = "ControllerPublishVolume", "ControllerUnpublishVolume", "NodeStageVolume", "NodeUnstageVolume"
	publish, unpublish, expand     = "NodePublishVolume", "NodeUnpublishVolume", "NodeExpandVolume"
)

// scenes returns the scenes of one node. elsewhere is a directory that no call may reach.
func scenes(elsewhere string) []scene {
	const none = csistrict.EffectNone
	grown := scene{
		name: "expand-in-use", grown: true, verdict: server.Stuck, word: "the array is on fire",
		fault: csistrict.Fault{Call: expand, Code: uint32(codes.FailedPrecondition), Effect: none, Message: "the array is on fire"},
	}
	tooLarge := grown
	tooLarge.name, tooLarge.fault.Code = "expand-out-of-range", uint32(codes.OutOfRange)
	return []scene{
		fails("attach-permission-denied", attach, codes.PermissionDenied, none),
		fails("attach-resource-exhausted", attach, codes.ResourceExhausted, none),
		fails("attach-internal", attach, codes.Internal, none),
		{
			name: "stage-aborted", verdict: server.Stuck, word: "before that", before: codes.DeadlineExceeded,
			fault: csistrict.Fault{Call: stage, Code: uint32(codes.Aborted), Effect: none, Message: "the array is on fire"},
		},
		fails("stage-already-exists", stage, codes.AlreadyExists, none),
		fails("stage-data-loss", stage, codes.DataLoss, none),
		fails("stage-failed-precondition", stage, codes.FailedPrecondition, none),
		fails("stage-internal-with-effect", stage, codes.Internal, ""),
		fails("stage-invalid-argument", stage, codes.InvalidArgument, ""),
		fails("stage-not-found", stage, codes.NotFound, none),
		fails("stage-out-of-range", stage, codes.OutOfRange, none),
		fails("stage-unauthenticated", stage, codes.Unauthenticated, none),
		fails("stage-unavailable", stage, codes.Unavailable, ""),
		fails("stage-unimplemented", stage, codes.Unimplemented, none),
		fails("stage-unknown-code", stage, codes.Code(77), none),
		{name: "stage-hangs", verdict: server.Working, word: "call in flight", fault: csistrict.Fault{Call: stage, Delay: 3_600_000, IgnoreCancel: true}},
		fails("publish-deadline-exceeded", publish, codes.DeadlineExceeded, none),
		fails("publish-halfway", publish, codes.Internal, csistrict.EffectPartial),
		fails("publish-permission-denied", publish, codes.PermissionDenied, none),
		lies("publish-lies", publish, none, ""),
		lies("publish-lies-with-a-directory", publish, csistrict.EffectPartial, ""),
		lies("publish-lies-elsewhere", publish, csistrict.EffectForeign, elsewhere),
		{
			name: "publish-lies-with-a-link", verdict: server.Stuck, word: "answered OK without the effect: the driver left a symbolic link at",
			fault: csistrict.Fault{Call: publish, Effect: csistrict.EffectSymlink, Path: elsewhere},
		},
		{name: "publish-garbage", verdict: server.Stuck, word: publish, fault: csistrict.Fault{Call: publish, Garbage: csistrict.GarbageBytes}},
		{name: "publish-too-much", verdict: server.Stuck, word: "larger", fault: csistrict.Fault{Call: publish, Garbage: csistrict.GarbageHuge}},
		fails("unpublish-internal", unpublish, codes.Internal, none).removing(),
		lies("unpublish-lies", unpublish, none, "").removing(),
		fails("unstage-busy", unstage, codes.Internal, none).removing().ofVolume(),
		lies("unstage-lies", unstage, none, "").removing().ofVolume(),
		fails("detach-internal", detach, codes.Internal, none).removing().ofVolume(),
		grown, tooLarge,
		{name: "no-claim", verdict: server.Stuck, word: "not found", docs: []string{harness.Pod("no-claim", fromClaim("nowhere"))}},
		{name: "no-driver", verdict: server.Waiting, word: "has not registered", docs: absent("no-driver")},
		{name: "no-inline", verdict: server.Stuck, word: "CSIDriver", docs: []string{harness.Pod("no-inline", volume{Name: "data", Source: "csi: {driver: absent.faults.dev}"})}},
		{name: "no-mode", verdict: server.Stuck, word: "has volumeMode Filesystem", docs: []string{
			want{name: "no-mode", class: "class"}.String(), harness.Pod("no-mode", volume{Name: "data", Source: "persistentVolumeClaim: {claimName: no-mode}", Block: true}),
		}},
		{name: "no-turn", verdict: server.Waiting, word: "ReadWriteOncePod", docs: []string{harness.Pod("no-turn", fromClaim("no-turn"))}},
	}
}

// absent returns a pod with a volume of a driver that does not exist.
func absent(name string) []string {
	return []string{
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: lost}\nspec:\n  capacity: {storage: 1Mi}\n" +
			"  accessModes: [ReadWriteOnce]\n  claimRef: {namespace: default, name: lost}\n  csi: {driver: absent.faults.dev, volumeHandle: v}",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: lost}\nspec: {storageClassName: '', volumeName: lost, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}",
		harness.Pod(name, fromClaim("lost")),
	}
}

// changing are the parts of an explanation that differ from run to run.
var changing = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`failed (?:once, \S+ ago|\d+ times since \S+ ago)`), "failed N times since AGE ago"},
	{regexp.MustCompile(`(in flight for|failing for|waiting for|up for|since|automatically in|at least|again in) (?:\d+[dhms])+`), "$1 AGE"},
	{regexp.MustCompile(`; before it failed N times since AGE ago`), ""},
	{regexp.MustCompile(`\n  last error .*`), ""},
	{regexp.MustCompile(`; \d+ other volumes? of it (?:is|are) as wanted`), ""},
	{regexp.MustCompile(`generation \d+`), "generation N"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "HASH"},
	{regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`(handle "|vol-|\^)[0-9a-z-]*UID`), "${1}UID"},
}

// settled returns an explanation without the parts that differ from run to run.
func (n *node) settled(e server.Explanation) string {
	text := strings.ReplaceAll(e.String(), n.Dir, "DIR")
	for _, c := range changing {
		text = c.re.ReplaceAllString(text, c.by)
	}
	return text
}

// begin applies the objects of the scene.
func (s scene) begin(n *node) {
	if s.docs != nil {
		n.Apply(s.docs...)
		return
	}
	n.Apply(n.class(s.name, s.name, s.params()...), want{name: s.name, class: s.name}.String(), harness.Pod(s.name, fromClaim(s.name)))
}

// params are the parameters of the scene's class: a secret, if the scene is about one.
func (s scene) params() []string {
	if s.name != "stage-unauthenticated" {
		return nil
	}
	return []string{"csi.storage.k8s.io/node-stage-secret-name", "array-login", "csi.storage.k8s.io/node-stage-secret-namespace", "default"}
}

// turn deletes the pod or grows the claim, if the scene needs that.
func (s scene) turn(n *node) {
	switch {
	case s.made:
		n.Remove(s.name)
	case s.grown:
		n.Apply(want{name: s.name, class: s.name, size: "2Mi"}.String())
	}
}

// explain waits until the explanation of the scene equals its golden file.
func (s scene) explain(t *testing.T, n *node) {
	kind, of := s.kind, s.of
	if kind == "" {
		kind, of = "pod", "default/"+s.name
	}
	file := filepath.Join("testdata", "explain", s.name+".txt")
	golden, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for {
		e, err := n.API.Explain(ctx, kind, of)
		if err != nil {
			t.Fatal(err)
		}
		text := n.settled(e)
		meant := e.Verdict == s.verdict && strings.Contains(text, s.word) && (s.name == "stage-hangs" || !strings.Contains(text, "in flight"))
		switch {
		case *update && meant:
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		case !*update && meant && text == string(golden) && (kind != "pod" || s.name == "stage-hangs" || n.toldAlike(ctx, s.name, e) && n.shownAlike(ctx, s.name, e)):
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("explain %s %s:\n got %s\nwant %s", kind, of, text, golden)
		case <-time.After(glance):
		}
	}
}

// toldAlike reports whether the API shows the explanation's cause for the pod's volume,
// since an event about the pod has the same text. If a call has begun since the
// explanation, the API shows no cause, and the test must ask again.
func (n *node) toldAlike(ctx context.Context, pod string, e server.Explanation) bool {
	p, err := n.API.Pod(ctx, "default", pod)
	if err != nil || len(p.Volumes) != 1 {
		return err != nil && strings.Contains(err.Error(), "not found") // the pod is gone, or does not exist yet
	}
	drivers, err := n.API.Drivers(ctx)
	if err != nil {
		return false
	}
	v := p.Volumes[0]
	told := []string{v.BlockedBy, v.Retry.Failure()}
	for _, d := range drivers {
		if d.Name == v.Driver && !d.Up {
			told = append(told, d.Problem)
		}
	}
	return slices.ContainsFunc(e.Lines, func(l server.Line) bool {
		return (l.Label == "because" || l.Label == "last error") && slices.Contains(told, l.Text)
	})
}

// driversWords matches the words that a driver adds to a code.
var driversWords = regexp.MustCompile(`( answered [^:; ]+): [^;]*|(before that: \w+): .*`)

// shownAlike reports whether the status page shows, for the pod's volume, the cause in the
// explanation, or the last failure while a call is in flight. The page leaves out the
// driver's words.
func (n *node) shownAlike(ctx context.Context, pod string, e server.Explanation) bool {
	n.T.Helper()
	rows := n.page(ctx)
	i := slices.IndexFunc(rows, func(r ui.Row) bool { return r.Kind == "pod" && r.Name == "default/"+pod })
	if i < 0 {
		return e.Verdict == server.Unknown // the pod is gone
	}
	v := slices.IndexFunc(rows, func(r ui.Row) bool { return r.Of == rows[i].Key })
	return v >= 0 && slices.ContainsFunc(e.Lines, func(l server.Line) bool {
		return (l.Label == "because" || l.Label == "last error") && driversWords.ReplaceAllString(l.Text, "$1$2") == rows[v].Why
	})
}

// page returns the rows of the status page: the first message of its stream.
func (n *node) page(ctx context.Context) []ui.Row {
	n.T.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first struct{ Set []ui.Row }
	err := n.get(ctx, "/ui/rows", func(body io.Reader) error {
		line, err := bufio.NewReader(body).ReadString('\n')
		if err != nil {
			return err
		}
		return json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &first)
	})
	if err != nil {
		n.T.Fatalf("the status page: %v", err)
	}
	return first.Set
}

// get reads the daemon's answer to a request for path on its socket.
func (n *node) get(ctx context.Context, path string, read func(io.Reader) error) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", n.Socket)
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return read(answer.Body)
}

// More than 30 volumes of one driver fail at once, each in its own way. Every explanation
// equals its golden file, other volumes are mounted and unmounted meanwhile, and all
// volumes are removed once the driver behaves.
//
// Items: N-58.
// Faults: A077, A082, A125.
// Attacks: C19.
func TestEveryFailureIsContainedAndExplained(t *testing.T) {
	t.Parallel()
	n := newPlace(t)
	elsewhere := filepath.Join(n.Dir, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	n.write(filepath.Join(elsewhere, "canary"), "alive")
	all := scenes(elsewhere)
	var s csistrict.Script
	for _, sc := range all {
		if sc.fault.Call != "" {
			f := sc.fault
			f.ID, f.Volume = sc.name, sc.name
			if first := f; sc.before != 0 {
				first.ID, first.Code, first.Message, first.Times = sc.name+"-before", uint32(sc.before), "the array smells", 1
				s.Faults = append(s.Faults, first)
			}
			s.Faults = append(s.Faults, f)
		}
	}
	n.begin(s)
	n.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: array-login}\nstringData: {password: planted}",
		want{name: "no-turn", class: "class", access: "ReadWriteOncePod"}.String(), harness.Pod("has-it", fromClaim("no-turn")))
	n.Mounted("has-it")
	for _, sc := range all {
		sc.begin(n)
	}
	for _, sc := range all {
		if sc.made || sc.grown {
			n.Mounted(sc.name)
			sc.turn(n)
		}
	}
	for _, sc := range all {
		t.Run(sc.name, func(t *testing.T) { sc.explain(t, n) })
	}
	n.good()
	n.recovers(all, elsewhere)
}

// recovers ends all faults and removes all pods and claims.
func (n *node) recovers(all []scene, elsewhere string) {
	n.T.Helper()
	n.play(csistrict.Script{})
	n.driver.Crash()
	var pods, claims []string
	for _, sc := range all {
		if !sc.made {
			pods = append(pods, sc.name)
		}
		if sc.docs == nil {
			claims = append(claims, sc.name)
		}
	}
	n.DeletePods(append(pods, "has-it")...)
	for n.layers(elsewhere) > 0 {
		if err := unix.Unmount(elsewhere, unix.UMOUNT_NOFOLLOW); err != nil {
			n.T.Fatalf("the foreign mount: %v", err)
		}
	}
	n.wantFile(filepath.Join(elsewhere, "canary"), "alive")
	n.DeleteClaims(append(claims, "no-mode", "no-turn", "good")...)
	n.verdict()
	if log, err := os.ReadFile(n.daemon.Log()); err != nil || strings.Contains(string(log), "planted") {
		n.T.Errorf("a secret is in the daemon's log (%v)", err)
	}
}

package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/host/cri"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/test/fakecri"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience limits every wait; a test that passes never reaches it.
const patience = time.Minute

// asker is a Runtime that runs, and the fake runtime that it asks.
type asker struct {
	*cri.Runtime
	t    *testing.T
	fake *fakecri.Runtime
}

func newAsker(t *testing.T) *asker {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri-") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fake := fakecri.New(t, filepath.Join(dir, "s"))
	r, err := cri.New(cri.Config{Endpoint: fake.Endpoint(), Every: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return &asker{r, t, fake}
}

// ask returns what the Runtime says of the pod, in order.
func (a *asker) ask(pod string) <-chan string {
	said := make(chan string, 100)
	a.t.Cleanup(a.Ask(state.PodUID(pod), func(why string) { said <- why }))
	return said
}

// hear returns the next answer.
func hear(t *testing.T, said <-chan string) string {
	t.Helper()
	select {
	case why := <-said:
		return why
	case <-time.After(patience):
		t.Fatal("nothing is said")
		return ""
	}
}

func wantSaid(t *testing.T, said <-chan string, words string) {
	t.Helper()
	if why := hear(t, said); words == "" && why != "" || !strings.Contains(why, words) {
		t.Errorf("said %q, want %q", why, words)
	}
}

// listed waits until the runtime has been asked once more, from beginning to end.
func (a *asker) listed() {
	a.t.Helper()
	for until := a.fake.Lists() + 2; a.fake.Lists() < until; {
		changed := time.NewTimer(time.Millisecond)
		<-changed.C
		if a.t.Context().Err() != nil {
			a.t.Fatal("the runtime is not asked")
		}
	}
}

// A container in any state but exited, and a sandbox that may start another, keeps the
// pod's volumes; containers of other pods do not.
func TestWhatLives(t *testing.T) {
	a := newAsker(t)
	a.fake.Sandbox("u1", runtimev1.PodSandboxState_SANDBOX_READY)
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_RUNNING)
	a.fake.Container("u1", "old", runtimev1.ContainerState_CONTAINER_EXITED)
	if why := hear(t, a.ask("u2")); why != "" {
		t.Errorf("a pod without containers: %q", why)
	}
	said := a.ask("u1")
	wantSaid(t, said, "container web (web-u1) of the pod still runs")
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_UNKNOWN)
	wantSaid(t, said, "a state that the runtime does not know")
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_CREATED)
	wantSaid(t, said, "is created, and may be started")
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_EXITED)
	wantSaid(t, said, "sandbox sandbox-u1 still runs")
	a.fake.Sandbox("u1", runtimev1.PodSandboxState_SANDBOX_NOTREADY)
	wantSaid(t, said, "")
	before := a.fake.Lists()
	wantSaid(t, a.ask("u3"), "") // no caller asks about u1 any more
	if asked := a.fake.Lists() - before; asked != 1 {
		t.Errorf("%d lists for one question, want 1", asked)
	}
}

// A runtime that fails or does not answer proves nothing, and the answer says why.
func TestASilentRuntimeProvesNothing(t *testing.T) {
	a := newAsker(t)
	a.fake.Refuse(true)
	said := a.ask("u1")
	wantSaid(t, said, "cannot tell whether containers of the pod still run: list the sandboxes of container runtime "+a.fake.Endpoint())
	if p := a.Problem(); !strings.Contains(p, "the runtime is on fire") {
		t.Errorf("problem: %q", p)
	}
	changed := a.Changed()
	a.fake.Stop()
	a.fake.Refuse(false)
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_RUNNING)
	wantSaid(t, said, "cannot tell")
	<-changed
	a.fake.Start()
	for why := hear(t, said); !strings.Contains(why, "web"); why = hear(t, said) {
		if why == "" {
			t.Fatal("said to be gone while it runs")
		}
	}
	if p := a.Problem(); p != "" {
		t.Errorf("problem: %q", p)
	}
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_EXITED)
	wantSaid(t, said, "")
}

// A problem says that volumes stay mounted; without a question none does, and the runtime is not asked again.
func TestAProblemEndsWithTheLastQuestion(t *testing.T) {
	a := newAsker(t)
	a.fake.Refuse(true)
	answers := make(chan string, 100)
	forget := a.Ask("u1", func(why string) { answers <- why })
	wantSaid(t, answers, "cannot tell")
	changed := a.Changed()
	if a.Problem() == "" {
		t.Fatal("no problem while the runtime fails")
	}
	forget()
	select {
	case <-changed:
	case <-time.After(patience):
		t.Error("the problem stays")
	}
	if p := a.Problem(); p != "" {
		t.Errorf("problem: %q", p)
	}
}

// A question that was forgotten gets no answer, and causes no request.
func TestForgottenQuestions(t *testing.T) {
	a := newAsker(t)
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_RUNNING)
	answers := make(chan string, 100)
	forget := a.Ask("u1", func(why string) { answers <- why })
	wantSaid(t, answers, "web")
	a.listed() // again and again, while the question is open
	forget()
	a.fake.Container("u1", "web", runtimev1.ContainerState_CONTAINER_EXITED)
	wantSaid(t, a.ask("u2"), "")
	if len(answers) > 0 {
		t.Errorf("answered %q", <-answers)
	}
}

func TestAnEndpointThatIsNone(t *testing.T) {
	if _, err := cri.New(cri.Config{Endpoint: "unix://a/%zz"}); err == nil {
		t.Error("no error")
	}
}

package registration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Items: J06, N-11, J01.
// Sidecars: SN-03.
func TestSocketsThatAreThereAtTheStartComeUp(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	serve(t, filepath.Join(dir, "sub", "b-reg.sock"), csi("b.example.com"))
	serve(t, filepath.Join(dir, ".hidden.sock"), csi("hidden.example.com"))
	if err := os.WriteFile(filepath.Join(dir, "plain.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x := start(t, dir)

	// start waited for Synced, so all sockets are known.
	if n := len(x.w.Sockets()); n != 2 {
		t.Fatalf("%d sockets are known, want 2: %+v", n, x.w.Sockets())
	}
	p := x.h.plugin("a.example.com")
	if p.Endpoint != "/csi/a.example.com.sock" || p.socket != x.path("a-reg.sock") {
		t.Errorf("plugin %+v", p)
	}
	x.untilState("sub/b-reg.sock", Up)
	if s := r.news(); !s.GetPluginRegistered() || s.GetError() != "" {
		t.Errorf("the registrar was told %v, want success", s)
	}
}

// Items: J06, N-05.
// Sidecars: SN-01.
func TestSocketsThatAppearLaterComeUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "run")
	x := start(t, dir)
	serve(t, x.path("a-reg.sock"), csi("a.example.com"))
	x.untilState("a-reg.sock", Up)

	if err := os.MkdirAll(x.path("sub/sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, x.path("sub/sub/b-reg.sock"), csi("b.example.com"))
	x.untilState("sub/sub/b-reg.sock", Up)
}

func TestNotificationIsSentOnAFreshConnection(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	start(t, dir)
	r.news()
	r.listener.mu.Lock()
	defer r.listener.mu.Unlock()
	if r.listener.accepted != 2 {
		t.Errorf("%d connections, want one for GetInfo and one for the notification", r.listener.accepted)
	}
}

// Items: J04.
// Sidecars: SN-02.
func TestRemovedSocketTakesItsDriverDown(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	x := start(t, dir)
	r.quit()
	x.untilGone("a-reg.sock")
	x.end()
	if got, want := x.h.lines(), []string{"up a.example.com a-reg.sock", "down a.example.com a-reg.sock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Items: J05.
// Sidecars: SN-02.
func TestSocketMadeAnewIsANewGenerationAndTheOldGoesDownFirst(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	x := start(t, dir)
	old := x.untilState("a-reg.sock", Up)
	r.quit()
	serve(t, r.path, csi("a.example.com"))
	s := x.until("a-reg.sock", func(s SocketStatus) bool { return s.State == Up && s.generation > old.generation })
	if p := x.h.plugin("a.example.com"); p.generation != s.generation {
		t.Errorf("up is generation %d, want %d", p.generation, s.generation)
	}
	want := []string{"up a.example.com a-reg.sock", "down a.example.com a-reg.sock", "up a.example.com a-reg.sock"}
	if got := x.h.lines(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Items: J18.
func TestTheNextGenerationWaitsUntilTheOldOneIsDown(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "x.sock"), csi("a.example.com"))
	begun, finish := make(chan struct{}), make(chan struct{})
	x := start(t, dir, func(_ *Watcher, h *recorder) {
		h.onDown = func(p Plugin) {
			if p.Name == "a.example.com" {
				close(begun)
				<-finish
			}
		}
	})
	r.quit()
	wait(t, begun, "Down")
	serve(t, r.path, csi("b.example.com")) // another driver on the same path
	serve(t, x.path("c.sock"), csi("c.example.com"))
	x.untilState("c.sock", Up)
	close(finish)
	x.untilState("x.sock", Up)
	want := []string{"up a.example.com x.sock", "up c.example.com c.sock", "down a.example.com x.sock", "up b.example.com x.sock"}
	if got := x.h.lines(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestChangingASocketsModeIsNoNewGeneration(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	x := start(t, dir)
	if err := os.Chmod(r.path, 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, x.path("b-reg.sock"), csi("b.example.com")) // once it is up, a scan has been made since
	x.untilState("b-reg.sock", Up)
	if s := x.untilState("a-reg.sock", Up); s.generation != 1 {
		t.Errorf("generation %d, want 1", s.generation)
	}
}

// Sidecars: SN-02.
func TestSocketOfADeadProcessWaitsUntilItIsMadeAnew(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	r.die()
	x := start(t, dir)
	s := x.untilState("a-reg.sock", Retrying)
	if !strings.Contains(s.Problem, "refused") {
		t.Errorf("problem %q does not say that the connection is refused", s.Problem)
	}
	remove(t, r.path)
	serve(t, r.path, csi("a.example.com"))
	x.untilState("a-reg.sock", Up)
}

// Items: J02, N-01, N-12.
func TestRefusalsAreReportedAndToldOnce(t *testing.T) {
	type change func(*registerapi.PluginInfo)
	for name, c := range map[string]struct {
		change change
		want   string
	}{
		"version 0":            {func(i *registerapi.PluginInfo) { i.SupportedVersions = []string{"0.3.0"} }, "none is a CSI version 1.x"},
		"version 2":            {func(i *registerapi.PluginInfo) { i.SupportedVersions = []string{"2.0.0"} }, "none is a CSI version 1.x"},
		"no version":           {func(i *registerapi.PluginInfo) { i.SupportedVersions = nil }, "none is a CSI version 1.x"},
		"name with a slash":    {func(i *registerapi.PluginInfo) { i.Name = "../../etc" }, `driver name "../../etc"`},
		"name of one dot":      {func(i *registerapi.PluginInfo) { i.Name = "." }, `driver name "."`},
		"name that ends in -":  {func(i *registerapi.PluginInfo) { i.Name = "a.example-" }, `driver name "a.example-"`},
		"name with _":          {func(i *registerapi.PluginInfo) { i.Name = "a_b" }, `driver name "a_b"`},
		"no name":              {func(i *registerapi.PluginInfo) { i.Name = "" }, `driver name ""`},
		"name of 64 letters":   {func(i *registerapi.PluginInfo) { i.Name = strings.Repeat("a", 64) }, "at most 63"},
		"endpoint by tcp":      {func(i *registerapi.PluginInfo) { i.Endpoint = "tcp://127.0.0.1:1" }, "not an absolute path"},
		"endpoint is relative": {func(i *registerapi.PluginInfo) { i.Endpoint = "csi.sock" }, "not an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			info := csi("a.example.com")
			c.change(info)
			r := serve(t, filepath.Join(dir, "a-reg.sock"), info)
			x := start(t, dir)
			s := x.untilState("a-reg.sock", Refused)
			if !strings.Contains(s.Problem, c.want) {
				t.Errorf("problem %q, want one with %q", s.Problem, c.want)
			}
			if told := r.news(); told.GetPluginRegistered() || told.GetError() != s.Problem {
				t.Errorf("the registrar was told %v, want the problem %q", told, s.Problem)
			}
			x.end()
			if len(r.told) > 0 || len(x.h.lines()) > 0 {
				t.Errorf("told %d times more, handler saw %q; want neither", len(r.told), x.h.lines())
			}
		})
	}
}

// If a driver's own socket is in the registration directory, the problem names that mistake.
// Faults: A072.
func TestADriversOwnSocketIsNamedAsTheMistake(t *testing.T) {
	dir := t.TempDir()
	s := grpc.NewServer()
	csipb.RegisterIdentityServer(s, csipb.UnimplementedIdentityServer{})
	l := listen(t, filepath.Join(dir, "csi.sock"))
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-served })
	x := start(t, dir)
	x.until("csi.sock", func(s SocketStatus) bool {
		return s.State != Up && strings.Contains(s.Problem, "a driver's CSI socket and not a registration socket")
	})
}

// Items: J02.
// Faults: A071.
func TestVersionsAreChosenAsTheKubeletDoes(t *testing.T) {
	for _, c := range []struct {
		versions []string
		ok       bool
	}{
		{[]string{"1.0.0"}, true},
		{[]string{"0.3.0", "1.1.0"}, true},
		{[]string{"garbage", "1.2.0"}, true},
		{[]string{"v1.0.0"}, true},
		{[]string{"2.0.0", "1.9.9"}, true},
		{[]string{"0.3.0"}, false},
		{[]string{"garbage"}, false},
		{nil, false},
	} {
		if err := checkVersions(c.versions); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v, want ok %v", c.versions, err, c.ok)
		}
	}
}

func TestWhereAKubeletWatchesTooNobodyIsToldAnything(t *testing.T) {
	dir := t.TempDir()
	info := csi("bad.example.com")
	info.SupportedVersions = []string{"0.3.0"}
	bad := serve(t, filepath.Join(dir, "bad-reg.sock"), info)
	other := serve(t, filepath.Join(dir, "other-reg.sock"), &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: "x"})
	good := serve(t, filepath.Join(dir, "good-reg.sock"), csi("good.example.com"))
	x := start(t, dir, func(w *Watcher, _ *recorder) { w.shared = true })
	x.untilState("good-reg.sock", Up)
	x.untilState("bad-reg.sock", Refused)
	for i := range 3 { // so that it has every occasion
		name := fmt.Sprintf("%d.sock", i)
		serve(t, x.path(name), csi(fmt.Sprint(i)))
		x.untilState(name, Up)
	}
	if s := x.untilState("other-reg.sock", Ignored); s.Problem != "" {
		t.Errorf("problem %q with a plugin that is none of our business", s.Problem)
	}
	x.end()
	for _, r := range []*registrar{bad, other, good} {
		if len(r.told) > 0 {
			t.Errorf("%s was told %v", r.path, <-r.told)
		}
	}
}

// Sidecars: SN-05.
func TestGarbageAndSilenceAreReportedAndHarmNobodyElse(t *testing.T) {
	dir := t.TempDir()
	garbage := listen(t, filepath.Join(dir, "garbage.sock"))
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n\x00\xff garbage")
			c.Close()
		}
	}()
	t.Cleanup(func() { garbage.Close(); <-served })
	hang := make(chan struct{})
	hung := serve(t, filepath.Join(dir, "hung.sock"), csi("hung.example.com"), func(r *registrar) { r.hang = hang })
	serve(t, filepath.Join(dir, "good.sock"), csi("good.example.com"))
	x := start(t, dir, func(w *Watcher, _ *recorder) { w.times.info = 50 * time.Millisecond })

	x.untilState("good.sock", Up)
	x.until("garbage.sock", func(s SocketStatus) bool { return s.State == Retrying && strings.Contains(s.Problem, "GetInfo") })
	x.until("hung.sock", func(s SocketStatus) bool {
		return s.State == Retrying && strings.Contains(s.Problem, "DeadlineExceeded")
	})
	if len(hung.told) > 0 {
		t.Errorf("a hung registrar was told %v", <-hung.told)
	}
	close(hang) // it recovers, and no event says so
	x.untilState("hung.sock", Up)
}

// Attacks: C18.
func TestOfTwoSocketsWithOneNameTheSecondTakesOverWhenTheFirstGoes(t *testing.T) {
	for name, leave := range map[string]func(*registrar){
		"removed":              (*registrar).quit,
		"killed, socket stays": (*registrar).die,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := serve(t, filepath.Join(dir, "1.sock"), csi("a.example.com"))
			x := start(t, dir)
			second := serve(t, x.path("2.sock"), csi("a.example.com"))
			s := x.untilState("2.sock", Waiting)
			if !strings.Contains(s.Problem, first.path) {
				t.Errorf("problem %q does not name %s", s.Problem, first.path)
			}
			leave(first)
			x.untilState("2.sock", Up)
			want := []string{"up a.example.com 1.sock", "down a.example.com 1.sock", "up a.example.com 2.sock"}
			if got := x.h.lines(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if !second.news().GetPluginRegistered() {
				t.Error("the second registrar was not told that it is registered")
			}
		})
	}
}

// A process of another user that can write the directory is no driver, whether it takes the
// name of a driver that is up or a new one: it gets no request and no answer.
//
// Attacks: C18.
func TestASocketOfAnotherUserRegistersNothing(t *testing.T) {
	for _, name := range []string{"a.example.com", "new.example.com"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := serve(t, filepath.Join(dir, "1.sock"), csi("a.example.com"))
			x := start(t, dir)
			x.untilState("1.sock", Up)
			rogue := serve(t, x.path("2.sock"), csi(name), ofUser(1000))
			s := x.untilState("2.sock", Refused)
			if s.Driver != "" || !strings.Contains(s.Problem, "user id 1000") {
				t.Errorf("status %+v, want no driver and who it is", s)
			}
			first.quit()
			x.untilGone("1.sock")
			serve(t, x.path("3.sock"), csi("a.example.com")) // the name is free, and the rogue did not get it
			x.untilState("3.sock", Up)
			want := []string{"up a.example.com 1.sock", "down a.example.com 1.sock", "up a.example.com 3.sock"}
			if got := x.h.lines(); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if n := rogue.asked.Load(); n > 0 || len(rogue.told) > 0 {
				t.Errorf("it got %d requests, and %d answers", n, len(rogue.told))
			}
		})
	}
}

// A registrar that outlives its driver loses the name to another socket, but only once that
// socket's driver is served.
//
// Sidecars: SN-01.
func TestARegistrarThatOutlivesItsDriverGivesTheNameToOneThatIsServed(t *testing.T) {
	dir := t.TempDir()
	endpoint := func(name string) *registerapi.PluginInfo {
		info := csi("d")
		info.Endpoint = filepath.Join(dir, name)
		return info
	}
	var served atomic.Bool // the second's endpoint is served
	x := start(t, filepath.Join(dir, "r"), func(_ *Watcher, h *recorder) {
		h.onDown = func(p Plugin) {
			if filepath.Base(p.socket) == "1.sock" && !served.Load() {
				t.Error("the first lost the name although the second could not serve it")
			}
		}
	})
	first := serve(t, filepath.Join(dir, "1"), nil)
	serve(t, x.path("1.sock"), endpoint("1"))
	x.untilState("1.sock", Up)
	serve(t, x.path("2.sock"), endpoint("2"))
	x.untilState("2.sock", Waiting)
	first.die()
	x.until("2.sock", func(s SocketStatus) bool { return strings.Contains(s.Problem, "does not listen") })
	served.Store(true)
	serve(t, filepath.Join(dir, "2"), nil)
	x.untilState("2.sock", Up)
	x.untilState("1.sock", Waiting)
	if got, want := x.h.lines(), []string{"up d 1.sock", "down d 1.sock", "up d 2.sock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAWaitingSocketThatGoesLeavesTheFirstAlone(t *testing.T) {
	dir := t.TempDir()
	first := serve(t, filepath.Join(dir, "1.sock"), csi("a.example.com"))
	x := start(t, dir)
	second := serve(t, x.path("2.sock"), csi("a.example.com"))
	x.untilState("2.sock", Waiting)
	second.quit()
	x.untilGone("2.sock")
	third := serve(t, x.path("3.sock"), csi("a.example.com")) // it waits for the first as well
	x.untilState("3.sock", Waiting)
	x.untilState("1.sock", Up)
	third.quit()
	first.news()
	if got, want := x.h.lines(), []string{"up a.example.com 1.sock"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestARegistrarThatDiesAloneLeavesItsDriverUp(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"))
	x := start(t, dir)
	r.news()
	r.die()
	serve(t, x.path("b.sock"), csi("b.example.com")) // so that a scan is made
	x.untilState("b.sock", Up)
	x.untilState("a.sock", Up)
}

// A plugin of another type is a kubelet's, even where nothing says that one watches the directory: its registrar is told
// nothing, since a refusal would end it. The kubelet's own requests to it change nothing.
//
// Items: J09.
func TestAPluginOfAnotherTypeIsToldNothing(t *testing.T) {
	dir := t.TempDir()
	var plugins []*registrar
	for _, kind := range []string{registerapi.DRAPlugin, registerapi.DevicePlugin, "Later"} {
		r := serve(t, filepath.Join(dir, kind+".sock"), &registerapi.PluginInfo{Type: kind, Name: "a.example.com", SupportedVersions: []string{"1.0.0"}})
		plugins = append(plugins, r)
	}
	x := start(t, dir)
	for _, r := range plugins {
		if s := x.untilState(filepath.Base(r.path), Ignored); !strings.Contains(s.Problem, "only CSIPlugin is served here") {
			t.Errorf("problem %q", s.Problem)
		}
		info, err := getInfo(t.Context(), r.path, patience) // as the kubelet's plugin manager does
		if err == nil {
			err = notify(t.Context(), r.path, &registerapi.RegistrationStatus{PluginRegistered: true})
		}
		if told := r.news(); err != nil || info.GetType() == registerapi.CSIPlugin || !told.GetPluginRegistered() {
			t.Errorf("%s: the kubelet's registration: %v, %v", r.path, told, err)
		}
	}
	x.end()
	for _, r := range plugins {
		if len(r.told) > 0 {
			t.Errorf("%s was told %v", r.path, <-r.told)
		}
	}
}

// What a program writes beside a driver's socket, or beside registration sockets, causes no attempt to register.
func TestWhatIsWrittenBesideASocketCausesNoAttempt(t *testing.T) {
	dir, drivers := t.TempDir(), t.TempDir()
	info := csi("a.example.com")
	info.Endpoint = filepath.Join(drivers, "csi.sock")
	r := serve(t, filepath.Join(dir, "a.sock"), info)
	x := start(t, dir, func(w *Watcher, h *recorder) {
		w.times.retry = 10 * patience
		h.refuse = func(p Plugin) error {
			if p.Name == "a.example.com" {
				_, err := os.Stat(p.Endpoint)
				return err
			}
			return nil
		}
	})
	x.untilState("a.sock", Retrying)
	for i := range 20 {
		for _, at := range []string{drivers, dir} {
			if err := os.WriteFile(filepath.Join(at, "driver.log"), []byte{byte(i)}, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(at, "driver.log"), filepath.Join(at, "driver.log.1")); err != nil {
				t.Fatal(err)
			}
		}
		name := fmt.Sprintf("%d.sock", i) // its events come after those
		made := filepath.Join(t.TempDir(), name)
		serve(t, made, csi(fmt.Sprint(i)))
		if err := os.Rename(made, x.path(name)); err != nil { // a socket that is seen before it listens is tried later
			t.Fatal(err)
		}
		x.untilState(name, Up)
	}
	if asked := r.asked.Load(); asked != 1 {
		t.Errorf("the registrar was asked %d times, want once", asked)
	}
	if err := os.WriteFile(info.Endpoint, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.untilState("a.sock", Up)
	if asked := r.asked.Load(); asked != 2 {
		t.Errorf("the registrar was asked %d times, want twice", asked)
	}
}

// Items: J07, N-93.
// Sidecars: SN-04.
func TestAFailedUpIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	tries := 0
	r := serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"))
	x := start(t, dir, func(_ *Watcher, h *recorder) {
		h.refuse = func(Plugin) error {
			if tries++; tries < 3 {
				return errTest
			}
			return nil
		}
	})
	x.untilState("a.sock", Up)
	want := []string{"fail a.example.com", "fail a.example.com", "up a.example.com a.sock"}
	if got := x.h.lines(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !r.news().GetPluginRegistered() {
		t.Error("a registrar was told of a failure that passed")
	}
}

func TestADriversOwnSocketCutsThePauseShort(t *testing.T) {
	dir, drivers := t.TempDir(), t.TempDir()
	info := csi("a.example.com")
	info.Endpoint = filepath.Join(drivers, "csi.sock")
	serve(t, filepath.Join(dir, "a.sock"), info)
	x := start(t, dir, func(w *Watcher, h *recorder) {
		w.times.retry = 10 * patience
		h.refuse = func(p Plugin) error {
			_, err := os.Stat(p.Endpoint)
			return err
		}
	})
	x.untilState("a.sock", Retrying)
	if err := os.WriteFile(info.Endpoint, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	x.untilState("a.sock", Up)
}

// Sidecars: SN-04.
func TestAnUpThatIsRefusedForGoodIsTold(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"))
	x := start(t, dir, func(_ *Watcher, h *recorder) {
		h.refuse = func(Plugin) error { return fmt.Errorf("it calls itself b.example.com: %w", ErrRefused) }
	})
	x.untilState("a.sock", Refused)
	if s := r.news(); s.GetPluginRegistered() || !strings.Contains(s.GetError(), "b.example.com") {
		t.Errorf("told %v", s)
	}
}

func TestANotificationThatIsLostIsRepeatedAndTheDriverStaysUp(t *testing.T) {
	dir := t.TempDir()
	fail := make(chan error, 1)
	fail <- status.Error(codes.Internal, "not now")
	r := serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"), func(r *registrar) {
		r.answer = func(*registerapi.RegistrationStatus) error {
			select {
			case err := <-fail:
				return err
			default:
				return nil
			}
		}
	})
	x := start(t, dir)
	x.until("a.sock", func(s SocketStatus) bool { return s.State == Up && strings.Contains(s.Problem, "not now") })
	r.news()
	r.news()
	x.until("a.sock", func(s SocketStatus) bool { return s.State == Up && s.Problem == "" })
}

func TestEndpointMayBeTheRegistrationSocketItself(t *testing.T) {
	dir := t.TempDir()
	info := csi("a.example.com")
	info.Endpoint = ""
	serve(t, filepath.Join(dir, "a.sock"), info)
	info = csi("b.example.com")
	info.Endpoint = "unix:///csi/b.sock"
	serve(t, filepath.Join(dir, "b.sock"), info)
	x := start(t, dir)
	if got := x.h.plugin("a.example.com").Endpoint; got != x.path("a.sock") {
		t.Errorf("endpoint %q, want the registration socket", got)
	}
	if got := x.h.plugin("b.example.com").Endpoint; got != "/csi/b.sock" {
		t.Errorf("endpoint %q, want /csi/b.sock", got)
	}
}

func TestSocketPathsMayBeLongerThanASocketAddress(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(dir, "a-reg.sock"), csi("a.example.com"))
	x := start(t, dir)
	x.untilState("a-reg.sock", Up)
}

// Faults: A067.
func TestLostEventsAreMadeUpForByAScan(t *testing.T) {
	for name, c := range map[string]struct {
		rescan  time.Duration
		trigger func(*Watcher)
	}{
		"overflow": {time.Hour, func(w *Watcher) { w.fs.Errors <- fsnotify.ErrEventOverflow }},
		"timer":    {20 * time.Millisecond, func(*Watcher) {}},
	} {
		t.Run(name, func(t *testing.T) {
			hidden := t.TempDir()
			r := serve(t, filepath.Join(hidden, "a.sock"), csi("a.example.com"))
			x := start(t, t.TempDir(), func(w *Watcher, _ *recorder) { w.times.rescan = c.rescan })
			if err := x.w.fs.Remove(x.dir); err != nil {
				t.Log(err) // the timer may be adding the watch again
			}
			if err := os.Rename(r.path, x.path("a.sock")); err != nil {
				t.Fatal(err)
			}
			c.trigger(x.w)
			x.untilState("a.sock", Up)
		})
	}
}

func TestTheDirectoryMayBeRemovedAndMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plugins_registry")
	x := start(t, dir)
	r := serve(t, x.path("a.sock"), csi("a.example.com"))
	x.untilState("a.sock", Up)
	r.die()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	x.untilGone("a.sock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	serve(t, x.path("b.sock"), csi("b.example.com"))
	x.untilState("b.sock", Up)
}

// This is the rolling update: an old and a new instance make, remove and rename their
// sockets in any order, and in the end the live one is up.
// Faults: A066.
func TestAnyInterleavingOfTwoInstancesEndsWithTheLiveOneUp(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	x := start(t, t.TempDir())
	names := []string{"1.sock", "2.sock"}
	live := map[string]*registrar{}
	for range 300 {
		name := names[rnd.IntN(2)]
		switch r := live[name]; {
		case r == nil:
			_ = os.Remove(x.path(name))
			live[name] = serve(t, x.path(name), csi("a.example.com"))
		case rnd.IntN(3) == 0: // killed: the socket stays
			r.die()
			delete(live, name)
		default:
			r.quit()
			delete(live, name)
		}
		other := names[1-slices.Index(names, name)]
		if r := live[name]; r != nil && rnd.IntN(4) == 0 && live[other] == nil {
			if err := os.Rename(x.path(name), x.path(other)); err != nil {
				t.Fatal(err)
			}
			r.path = x.path(other)
			live[other] = r
			delete(live, name)
		}
	}
	for _, name := range names {
		if live[name] == nil {
			_ = os.Remove(x.path(name))
			live[name] = serve(t, x.path(name), csi("a.example.com"))
		}
	}
	live["1.sock"].quit()
	x.untilState("2.sock", Up)
	if got := x.h.plugin("a.example.com").socket; got != x.path("2.sock") {
		t.Errorf("up is %s, want 2.sock", got)
	}
	x.end()
	if ups, downs := count(x.h.lines(), "up"), count(x.h.lines(), "down"); ups != downs {
		t.Errorf("%d ups, %d downs", ups, downs)
	}
}

func count(lines []string, verb string) (n int) {
	for _, l := range lines {
		if strings.HasPrefix(l, verb+" ") {
			n++
		}
	}
	return n
}

func TestADirectoryThatCannotBeMadeEndsRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := New(Config{Dir: filepath.Join(file, "sub"), Handler: &recorder{}}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name the directory", err)
	}
}

func TestWhatAPluginSaysIsBoundedAndOneLine(t *testing.T) {
	dir := t.TempDir()
	info := csi("a.example.com")
	info.Type = "Tape\x1b[2J\nlevel=ERROR" + strings.Repeat("x", 100_000)
	serve(t, filepath.Join(dir, "a.sock"), info)
	s := start(t, dir).untilState("a.sock", Ignored)
	if len(s.Problem) > 2*maxText || strings.ContainsAny(s.Problem, "\x1b\n") {
		t.Errorf("problem %q", s.Problem)
	}
}

func TestARegistrarWithoutNotificationsNeedsNone(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"), func(r *registrar) {
		r.answer = func(*registerapi.RegistrationStatus) error { return status.Error(codes.Unimplemented, "none") }
	})
	x := start(t, dir)
	r.news()
	if s := x.untilState("a.sock", Up); s.Problem != "" {
		t.Errorf("problem %q", s.Problem)
	}
	x.end()
	if len(r.told) > 0 {
		t.Error("it was told again")
	}
}

func TestTooMuchInTheDirectoryHarmsNoSocketBeforeIt(t *testing.T) {
	dir := t.TempDir()
	for i := range maxDirs {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprintf("b%d", i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	serve(t, filepath.Join(dir, "a.sock"), csi("a.example.com"))
	serve(t, filepath.Join(dir, "c.sock"), csi("c.example.com"))
	x := start(t, dir)
	x.untilState("a.sock", Up)
	if n := len(x.w.Sockets()); n != 1 {
		t.Errorf("%d sockets", n)
	}
}

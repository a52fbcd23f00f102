package named

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// host is a node during one boot, with what its named volumes need: a journal in memory, a real catalog, and a fake
// manager and kernel.
type host struct {
	mu       sync.Mutex
	kv       map[string][]byte
	bad      map[string]string // unreadable values
	kvErr    error
	pods     map[state.PodUID]bool // that the manager received
	synced   map[string]bool
	mounted  func(ctx context.Context) error // nil: at once
	holders  []Holder
	holdErr  error
	looks    int
	claim    func() ClaimState // nil: bound
	changed  chan struct{}     // closed when claim changes
	deleted  []string
	lost     bool
	deleteIs error
	// reclaimed are the calls of Reclaim, which reclaimIs answers; gives are the owners of calls of Give.
	reclaimed []string
	reclaimIs error
	gives     []state.Owner
	gone      func(ctx context.Context) error
	shelf     shelf
}

func newHost() *host {
	return &host{kv: map[string][]byte{}, bad: map[string]string{}, pods: map[state.PodUID]bool{}, synced: map[string]bool{}, changed: make(chan struct{})}
}

func (h *host) LoadBucket(context.Context, string) (state.Values, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return state.Values{Sound: maps.Clone(h.kv), Unreadable: h.bad}, h.kvErr
}

func (h *host) CommitBucket(_ context.Context, _ string, changes map[string][]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kvErr != nil {
		return h.kvErr
	}
	if err := h.shelf.step(); err != nil {
		return err
	}
	for k, v := range changes {
		if h.kv[k] = v; v == nil {
			delete(h.kv, k)
		}
	}
	return nil
}

func (h *host) SetPod(p state.PodWant)     { h.mu.Lock(); h.pods[p.Pod.UID] = true; h.mu.Unlock() }
func (h *host) RemovePod(uid state.PodUID) { h.mu.Lock(); delete(h.pods, uid); h.mu.Unlock() }
func (h *host) SourceSynced(name string)   { h.mu.Lock(); h.synced[name] = true; h.mu.Unlock() }

func (h *host) Mounted(ctx context.Context, uid types.UID) error {
	h.mu.Lock()
	f, told := h.mounted, h.pods[state.PodUID(uid)]
	h.mu.Unlock()
	if !told {
		return errors.New("the manager does not know the pod")
	}
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (h *host) Gone(ctx context.Context, uid types.UID) error {
	h.mu.Lock()
	f, told := h.gone, h.pods[state.PodUID(uid)]
	h.mu.Unlock()
	if told {
		return errors.New("a source still lists the pod")
	}
	if f != nil {
		return f(ctx)
	}
	return nil
}

func (h *host) Give(_ context.Context, pod source.Key, container string, o state.Owner) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gives = append(h.gives, o)
	return "/root/" + pod.Name + "/" + container, nil
}

func (h *host) Holders(context.Context, types.UID) ([]Holder, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	return h.holders, h.holdErr
}

func (h *host) Waits(types.UID) []string { return nil }

func (h *host) Ends(source.Key) string { return "kubectl delete pod it" }

func (h *host) Claim(source.Key) (ClaimState, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.claim == nil {
		return ClaimState{Bound: true}, h.changed
	}
	changed := h.changed
	return h.claim(), changed
}

// is makes the state of every claim c from now on.
func (h *host) is(c ClaimState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claim = func() ClaimState { return c }
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) DeleteNamed(_ context.Context, _ Asker, claim source.Key, _ string, withdraw func()) (string, error) {
	if h.deleteIs != nil {
		return "", h.deleteIs
	}
	if err := h.shelf.step(); err != nil {
		return "", err
	}
	withdraw()
	h.deleted = append(h.deleted, claim.Name)
	return "", nil
}

func (h *host) Reclaim(_ context.Context, claim source.Key, del bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reclaimed = append(h.reclaimed, fmt.Sprint(claim.Name, " ", del))
	return h.reclaimIs
}

func (h *host) listed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pods)
}

func (h *host) looked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looks
}

func (h *host) hold(holders ...Holder) {
	h.mu.Lock()
	h.holders = holders
	h.mu.Unlock()
}

// start runs a provider on the host until stop is called.
func (h *host) start(t *testing.T, boot string) (p *Provider, c *source.Catalog, stop func()) {
	t.Helper()
	return h.startWith(t, boot, func(*Config) {})
}

// startWith is start with a changed configuration.
func (h *host) startWith(t *testing.T, boot string, change func(*Config)) (p *Provider, c *source.Catalog, stop func()) {
	t.Helper()
	c = source.New(source.Config{Resolve: resolve.Config{NodeName: "n"}, Sink: h})
	class := &storagev1.StorageClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: resolve.KindClass},
		ObjectMeta:  metav1.ObjectMeta{Name: "local", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "local.example.com",
	}
	claim := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
	}
	for _, o := range []source.Update{{Put: []runtime.Object{class, claim}}} {
		if err := c.Apply("api", o); err != nil {
			t.Fatal(err)
		}
	}
	h.shelf.catalog = c
	cfg := Config{KV: h, Catalog: c, Mounts: h, Claims: h, BootID: boot, Lost: func() bool { return h.lost }, Logger: slog.New(slog.DiscardHandler)}
	change(&cfg)
	p = New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	synctest.Wait()
	return p, c, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		h.pods = map[state.PodUID]bool{}
		h.mu.Unlock()
	}
}

func create(t *testing.T, p *Provider, name string, options map[string]string) {
	t.Helper()
	if err := p.Create(t.Context(), Request{Name: name, FrontEnd: Docker, Options: options}); err != nil {
		t.Fatal(err)
	}
}

func TestAVolumeStaysWhileTheKernelShowsAHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		if h.listed() != 0 {
			t.Fatal("a volume that no container wants is mounted")
		}
		path, err := p.Mount(t.Context(), "db", "c1")
		if err != nil || path == "" || h.listed() != 1 {
			t.Fatalf("path %q, %v, %d pods", path, err, h.listed())
		}
		// docker cp of the running container mounts and unmounts by the same id (moby#37314).
		if _, err := p.Mount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.Unmount(t.Context(), "db", "c1"); err != nil {
				t.Fatal(err)
			}
		}
		h.hold(Holder{PID: 7, Path: "/data"}) // the unmount came too early: the container has it
		time.Sleep(10 * time.Minute)
		if h.listed() != 1 {
			t.Fatal("unmounted under a container")
		}
		if n := h.looked(); n > 40 {
			t.Errorf("%d looks at all processes in 10 minutes", n)
		}
		h.hold()
		time.Sleep(lastPause + time.Second)
		if h.listed() != 0 {
			t.Fatal("still wanted after the last holder has gone")
		}
		if v, err := p.Get(t.Context(), "db"); err != nil || v.Mountpoint != "" {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}

func TestAVolumeLingersAfterItsLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		for range 3 { // podman mounts, unmounts and mounts again (podman#16339)
			if _, err := p.Mount(t.Context(), "db", "podman"); err != nil {
				t.Fatal(err)
			}
			if err := p.Unmount(t.Context(), "db", "podman"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(Linger - 1)
			if h.listed() != 1 {
				t.Fatal("taken back within the linger")
			}
		}
		time.Sleep(time.Second)
		if h.listed() != 0 {
			t.Error("not taken back after it")
		}
	})
}

// The linger time counts from the last unmount, however long ago the mount was. A use that begins after the decision
// to remove, but before the removal, keeps its volume.
func TestTheLastUseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		if _, err := p.Mount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		r, err := p.find(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		p.leave(t.Context(), r)
		if h.listed() != 1 {
			t.Fatal("taken back although a use is counted")
		}
		if err := p.Unmount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Linger - 1)
		if h.listed() != 1 || h.looked() != 0 {
			t.Errorf("within the linger: %d pods, %d looks", h.listed(), h.looked())
		}
		time.Sleep(time.Second)
		if h.listed() != 0 {
			t.Error("still wanted after it")
		}
	})
}

func TestWhatIsNotKnownKeepsAVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		h.mu.Lock()
		h.holdErr = errors.New("process 7 could not be looked at")
		h.mu.Unlock()
		if _, err := p.Mount(t.Context(), "db", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if h.listed() != 1 {
			t.Error("taken back although it is not known who has it")
		}
		if _, err := p.Remove(t.Context(), "db"); !errors.Is(err, ErrConflict) {
			t.Errorf("removed: %v", err)
		}
	})
}

// A client that gave up waiting repeats its mount: there is only one Stage.
func TestAMountThatItsCallerGaveUpIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		h.mounted = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := p.Mount(ctx, "db", "c1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := p.Unmount(t.Context(), "db", "c1"); err != nil { // moby#37834
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if h.listed() != 1 {
			t.Fatal("what was asked for is given up")
		}
		if v, _ := p.Get(t.Context(), "db"); len(v.Uses) != 0 {
			t.Errorf("counted: %v", v.Uses)
		}
		time.Sleep(awaitRepetition)
		if h.listed() != 0 {
			t.Error("no repetition came, and it is still wanted")
		}
	})
}

func TestAMountWhoseCallerHasGoneIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		for range 20 { // select takes a free lock or the end of ctx at random
			ctx, cancel := context.WithCancel(t.Context())
			h.mounted = func(context.Context) error { cancel(); return nil } // the caller goes as the mount is done
			path, err := p.Mount(ctx, "db", "c1")
			if err == nil {
				t.Fatalf("answered %s", path)
			}
			if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "%!") {
				t.Errorf("got %q, want the cause in words", err)
			}
			if v, _ := p.Get(t.Context(), "db"); len(v.Uses) != 0 {
				t.Errorf("counted: %v", v.Uses)
			}
		}
	})
}

func TestUsesOutliveTheDaemonAndNoReboot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		create(t, p, "counted", nil)
		create(t, p, "held", nil)
		create(t, p, "idle", nil)
		if err := p.Create(t.Context(), Request{Name: "standing", FrontEnd: Nomad, Standing: true}); err != nil {
			t.Fatal(err)
		}
		for name, id := range map[string]string{"counted": "c1", "held": "", "standing": ""} {
			if _, err := p.Mount(t.Context(), name, id); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		_, _, stop = h.start(t, "1")
		if h.listed() != 3 {
			t.Fatalf("%d pods after a restart, want those of 3 volumes", h.listed())
		}
		time.Sleep(time.Minute) // the kernel shows no holder of the volume without a count
		if h.listed() != 2 {
			t.Errorf("%d pods after a look, want 2", h.listed())
		}
		stop()
		p, _, stop = h.start(t, "2")
		defer stop()
		if h.listed() != 1 {
			t.Errorf("%d pods after a reboot, want that of the standing volume", h.listed())
		}
		if v, err := p.Get(t.Context(), "counted"); err != nil || len(v.Uses) != 0 {
			t.Errorf("got %+v, %v", v, err)
		}
	})
}

// The provider never says that a known volume does not exist: the front end would forget it, and create a local one
// of the same name.
func TestWhatIsNotReadIsNotSaidToBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p := New(Config{KV: h, BootID: "1", Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Get(ctx, "db"); !errors.Is(err, ErrUnknown) || errors.Is(err, ErrNotFound) {
			t.Errorf("before the rows are read: %v", err)
		}
		h.bad["db"] = "checksum"
		p, _, stop := h.start(t, "1")
		defer stop()
		if v, err := p.Get(t.Context(), "db"); err != nil || !strings.Contains(v.Problem, "checksum") {
			t.Errorf("not readable: %+v, %v", v, err)
		}
		if h.synced[Name] {
			t.Error("the source has spoken although it may want a pod that is not known")
		}
		if _, err := p.Get(t.Context(), "other"); !errors.Is(err, ErrNotFound) {
			t.Errorf("one that there is not: %v", err)
		}
		for what, err := range map[string]error{
			"create": p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}),
			"mount":  second(p.Mount(t.Context(), "db", "x")),
			"remove": second(p.Remove(t.Context(), "db")),
		} {
			if !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestCreateAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		h.is(ClaimState{Why: "CreateVolume is in flight"})
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req := Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"size": "2Gi"}}
		if err := p.Create(short, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := p.Get(t.Context(), "db"); err != nil {
			t.Errorf("what is being made is not there: %v", err)
		}
		h.is(ClaimState{Bound: true})
		if err := p.Create(t.Context(), req); err != nil {
			t.Errorf("the repetition: %v", err)
		}
		for _, options := range []map[string]string{{"size": "1Gi"}, {"size": "2Gi", "uid": "5"}, {"size": "3Gi", "uid": "5"}} {
			req.Options = options
			if err := p.Create(t.Context(), req); !errors.Is(err, ErrConflict) {
				t.Errorf("other options %v: %v", options, err)
			}
		}
		for _, options := range []map[string]string{{"size": "3Gi"}, nil} {
			req.Options = options
			if err := p.Create(t.Context(), req); err != nil {
				t.Errorf("options %v: %v", options, err)
			}
			claim, _ := c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}).(*corev1.PersistentVolumeClaim)
			if got := claim.Spec.Resources.Requests.Storage().String(); got != "3Gi" {
				t.Errorf("options %v: the claim asks for %s", options, got)
			}
			if v, _ := p.Get(t.Context(), "db"); v.Options.SizeBytes != 3<<30 {
				t.Errorf("options %v: the row has %d bytes", options, v.Options.SizeBytes)
			}
		}
		if err := p.Create(t.Context(), Request{Name: "x_db", FrontEnd: Docker}); err != nil {
			t.Fatal(err)
		}
		if err := p.Create(t.Context(), Request{Name: "x-db", FrontEnd: Docker}); !errors.Is(err, ErrConflict) {
			t.Errorf("another name of the same claim: %v", err)
		}
		if err := p.Create(t.Context(), Request{Name: "default/x-db", FrontEnd: Mount}); !errors.Is(err, ErrConflict) {
			t.Errorf("another front end's name of the same claim: %v", err)
		}
		if c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}) == nil {
			t.Error("the catalog has no claim")
		}
	})
}

func TestCreateRefusesByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		for what, tc := range map[string]struct {
			name    string
			options map[string]string
			words   []string
		}{
			"a name no claim can have": {"Data", nil, []string{"Data"}},
			"a class that is not there": {
				"db", map[string]string{"class": "fast"}, []string{"StorageClass fast not found; there are: local"},
			},
			"a claim that is not there": {
				"db", map[string]string{"claim": "nope"}, []string{"claim default/nope not found; there are: default/theirs"},
			},
			"another source's claim": {"theirs", nil, []string{"claim=theirs"}},
		} {
			err := p.Create(t.Context(), Request{Name: tc.name, FrontEnd: Docker, Options: tc.options})
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrConflict) {
				t.Errorf("%s: %v", what, err)
				continue
			}
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %q lacks %q", what, err, w)
				}
			}
		}
		if list, _ := p.List(t.Context()); len(list) != 0 || len(h.kv) != 0 {
			t.Errorf("left behind: %v", list)
		}
		h.is(ClaimState{Refused: true, Why: "the driver refuses the size"})
		if err := p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}); err == nil || len(h.kv) != 0 {
			t.Errorf("refused by the driver: %v; left behind: %d", err, len(h.kv))
		}
	})
}

func TestRemoveRefusesWhatIsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		if _, err := p.Mount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		refused := func(what, word string) {
			t.Helper()
			if _, err := p.Remove(t.Context(), "db"); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v", what, err)
			}
		}
		refused("a container is about to start", "about to start")
		h.hold(Holder{PID: 7, Program: "postgres", Path: "/data"})
		refused("a container has just started", "process 7 (postgres) at /data: end that first, then: docker volume rm db")
		h.hold(Holder{PID: 7, Program: "postgres", Container: strings.Repeat("ab", 32), Path: "/data"})
		time.Sleep(startTime)
		refused("a container runs", "container abababababab (postgres, process 7)")
		h.hold()
		pod := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "web"},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db"},
			}}}},
		}
		if err := c.Put("api", pod); err != nil {
			t.Fatal(err)
		}
		refused("a pod names the claim", "pod default/web, which ends by: kubectl delete pod it")
		c.Delete("api", source.Key{Kind: resolve.KindPod, Namespace: "default", Name: "web"})
		// Only the count is left: podman's unmount never came.
		if _, err := p.Remove(t.Context(), "db"); err != nil || len(h.kv) != 0 || len(h.deleted) != 1 || h.listed() != 0 {
			t.Errorf("%v; rows %d, deleted %v, pods %d", err, len(h.kv), h.deleted, h.listed())
		}
		if _, err := p.Get(t.Context(), "db"); !errors.Is(err, ErrNotFound) {
			t.Errorf("after its removal: %v", err)
		}
	})
}

func TestARemovalThatIsCutOffGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		create(t, p, "db", nil)
		h.gone = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Remove(short, "db"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := p.Mount(t.Context(), "db", "c1"); !errors.Is(err, ErrConflict) {
			t.Errorf("mounted while it goes: %v", err)
		}
		stop()
		claim := source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "db"}
		_, c, stop := h.start(t, "1")
		if c.Get(claim) != nil || h.listed() != 0 {
			t.Error("what goes is wanted again")
		}
		stop()
		h.gone = nil
		p, c, stop = h.start(t, "1")
		defer stop()
		synctest.Wait()
		if len(h.kv) != 0 || len(h.deleted) != 1 {
			t.Errorf("rows %d, deleted %v", len(h.kv), h.deleted)
		}
		if _, err := p.Get(t.Context(), "db"); !errors.Is(err, ErrNotFound) || c.Get(claim) != nil {
			t.Errorf("left: %v", err)
		}
	})
}

// A removal that was read from a journal that may have lost newer records waits until an operator accepts the loss, or until
// it is asked for again; the list and the problems say so.
//
// Faults: A186.
func TestARemovalOfALostPastWaits(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *host, *Provider){
		"accepted": func(_ *testing.T, h *host, p *Provider) { h.lost = false; p.LossAccepted() },
		"asked for": func(t *testing.T, _ *host, p *Provider) {
			_, err := p.Remove(t.Context(), "db")
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				p, _, stop := h.start(t, "1")
				create(t, p, "db", nil)
				h.gone = func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
				short, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := p.Remove(short, "db"); err == nil {
					t.Fatal("removed")
				}
				stop()
				h.gone, h.lost = nil, true
				p, _, stop = h.start(t, "1")
				defer stop()
				time.Sleep(time.Hour) // of the bubble
				v, err := p.Get(t.Context(), "db")
				if err != nil || len(h.deleted) != 0 || !strings.Contains(fmt.Sprint(v.Waits), "csi-volmgr journal accept") {
					t.Errorf("deleted %v, waits %q, %v", h.deleted, v.Waits, err)
				}
				if all := p.Problems(); len(all) != 1 || !strings.Contains(all[0].Text, "csi-volmgr journal accept") {
					t.Errorf("problems %+v", all)
				}
				end(t, h, p)
				synctest.Wait()
				if len(h.kv) != 0 || len(h.deleted) != 1 || len(p.Problems()) != 0 {
					t.Errorf("rows %d, deleted %v, problems %v", len(h.kv), h.deleted, p.Problems())
				}
			})
		})
	}
}

func TestAnExistingClaimStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", map[string]string{"claim": "theirs"})
		if _, err := p.Remove(t.Context(), "db"); err != nil || len(h.deleted) != 0 {
			t.Errorf("%v, deleted %v", err, h.deleted)
		}
		if c.Get(source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "theirs"}) == nil {
			t.Error("another source's claim is gone")
		}
	})
}

func TestStaleUsesAreFoundAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		if _, err := p.Mount(t.Context(), "db", "c1"); err != nil {
			t.Fatal(err)
		}
		stale := func(end bool) int {
			t.Helper()
			how := EndNone
			if end {
				how = EndSafe
			}
			s, err := p.Stale(t.Context(), how)
			if err != nil {
				t.Fatal(err)
			}
			return len(s)
		}
		if stale(true) != 0 {
			t.Error("a container may be about to start")
		}
		time.Sleep(startTime)
		h.hold(Holder{PID: 7, Path: "/data"})
		if stale(true) != 0 {
			t.Error("a container has it")
		}
		h.hold()
		for range 2 {
			if stale(false) != 1 || h.listed() != 1 {
				t.Error("looking ended a use")
			}
		}
		if stale(true) != 1 || stale(true) != 0 {
			t.Error("ended once")
		}
		time.Sleep(Linger + time.Second)
		if h.listed() != 0 {
			t.Error("still wanted")
		}
	})
}

// With a full disk, the provider refuses requests that it could not remember, and harms nothing.
func TestWhatCannotBeStoredIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, _, stop := h.start(t, "1")
		defer stop()
		create(t, p, "db", nil)
		h.mu.Lock()
		h.kvErr = errors.New("no space")
		h.mu.Unlock()
		if err := p.Create(t.Context(), Request{Name: "other", FrontEnd: Docker}); err == nil {
			t.Error("created")
		}
		if _, err := p.Mount(t.Context(), "db", "c1"); err == nil || h.listed() != 0 {
			t.Errorf("mounted: %v, %d pods", err, h.listed())
		}
		if _, err := p.Remove(t.Context(), "db"); err == nil {
			t.Error("removed")
		}
		if list, err := p.List(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("%v, %v", list, err)
		}
	})
}

func TestOwnClass(t *testing.T) {
	o, err := parse(placeOf("db"), map[string]string{"fsType": "xfs", "mountOptions": "noatime,nodev"})
	if err != nil {
		t.Fatal(err)
	}
	claim := Volume{Name: "db", FrontEnd: Docker, Options: o}.claimObjects()[0].(*corev1.PersistentVolumeClaim)
	class := &storagev1.StorageClass{Parameters: map[string]string{"a": "b"}}
	own, err := ClassOf(class, claim)
	if err != nil || *own.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain || own.Parameters[fsTypeParameter] != "xfs" ||
		own.Parameters["a"] != "b" || len(own.MountOptions) != 2 {
		t.Errorf("got %+v, %v", own, err)
	}
	if len(class.Parameters) != 1 || class.ReclaimPolicy != nil {
		t.Errorf("the class itself changed: %+v", class)
	}
	class.Parameters = map[string]string{"fsType": "ext4"}
	if own, err := ClassOf(class, claim); err != nil || own.Parameters["fsType"] != "xfs" || len(own.Parameters) != 1 {
		t.Errorf("of a class with an older parameter: %+v, %v", own, err)
	}
	claim.Annotations[MountOptionsAnnotation] = "noatime"
	if _, err := ClassOf(class, claim); err == nil {
		t.Error("an annotation that is no list is taken")
	}
}

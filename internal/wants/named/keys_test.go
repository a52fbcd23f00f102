package named

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// another returns an object of another source under the key.
func another(key source.Key) runtime.Object {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "another"}
	if key.Kind == resolve.KindPod {
		return &corev1.Pod{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: key.Kind}, ObjectMeta: meta,
			Spec: corev1.PodSpec{
				Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				Containers: []corev1.Container{{Name: podContainer, VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			},
		}
	}
	if key.Kind == resolve.KindVolume {
		o := Options{Namespace: "default", Claim: "db", Driver: "d", Handle: "another", AccessMode: corev1.ReadWriteOnce, SizeBytes: 1}
		return Volume{Options: o}.claimObjects()[1]
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: key.Kind}, ObjectMeta: meta,
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "another"},
	}
}

// ownedKeys are the keys of Docker's volume db, and of the one of a driver's handle.
var ownedKeys = []source.Key{
	{Kind: resolve.KindPod, Namespace: "default", Name: "docker.db"},
	{Kind: resolve.KindClaim, Namespace: "default", Name: "db"},
	{Kind: resolve.KindVolume, Name: "default.db"},
}

// Whatever object of another source comes under a volume's keys, in a manifest or by the API, the volume's own stays in
// effect: while it is mounted, while it is not, and after a restart. When the volume is removed, the other has effect.
func TestAVolumeOwnsItsKeys(t *testing.T) {
	static := map[string]string{"driver": "d", "handle": "own"}
	for _, key := range ownedKeys {
		for _, by := range []string{"file", "api"} {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				p, c, stop := h.start(t, "1")
				create(t, p, "db", static)
				if n, owned, err := p.Owner(t.Context(), by, key); err != nil || !owned || n != (Identity{Docker, "db"}) {
					t.Errorf("%s belongs to %v, %v, %v", key, n, owned, err)
				}
				own := c.Get(key)
				if err := c.Put(by, another(key)); err != nil {
					t.Fatal(err)
				}
				if got := c.Get(key); got != own {
					t.Errorf("%s: %+v of source %s is in effect", key, got, by)
				}
				if _, err := p.Mount(t.Context(), "db", "c1"); err != nil || c.Provider(key) != Name {
					t.Errorf("%s is of %q; mounted: %v", key, c.Provider(key), err)
				}
				stop()

				p, c, stop = h.start(t, "1") // it lists the pod again, before or after the other source has spoken
				defer stop()
				if err := c.Put(by, another(key)); err != nil {
					t.Fatal(err)
				}
				if c.Provider(key) != Name {
					t.Errorf("after a restart %s is of %q", key, c.Provider(key))
				}
				time.Sleep(startTime)
				if _, err := p.Remove(t.Context(), "db"); err != nil || c.Provider(key) != by {
					t.Errorf("after the removal %s is of %q, %v", key, c.Provider(key), err)
				}
			})
		}
	}
}

// A volume that is made again from kept data owns its keys too, over a restart, and takes none of another source.
func TestARestoredVolumeOwnsItsKeys(t *testing.T) {
	for _, key := range ownedKeys[:2] {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, c, stop := h.start(t, "1")
			create(t, p, "db", nil)
			h.shelf.holds("db", "first")
			remove(t, p, "db")
			if err := c.Put("file", another(key)); err != nil {
				t.Fatal(err)
			}
			_, err := p.Restore(t.Context(), "db"+removedAt, "")
			if !errors.Is(err, ErrConflict) || c.Provider(key) != "file" || h.shelf.has() != "db"+removedAt+"=first" || len(h.kv) != 0 {
				t.Errorf("%s of another source: %v; %s, journal %v", key, err, h.shelf.has(), h.kv)
			}
			c.Delete("file", key)
			if _, err := p.Restore(t.Context(), "db"+removedAt, ""); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := c.Put("api", another(key)); err != nil {
					t.Fatal(err)
				}
				if provider := c.Provider(key); provider == "api" {
					t.Errorf("%s is of %q", key, provider)
				}
				stop()
				_, c, stop = h.start(t, "1")
			}
			stop()
		})
	}
}

// A volume whose pod or claim another source has already is not created, and leaves nothing behind. The option claim
// uses the other's claim.
func TestAVolumeTakesNoKeyOfAnother(t *testing.T) {
	for _, key := range ownedKeys {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, c, stop := h.start(t, "1")
			defer stop()
			if err := c.Put("file", another(key)); err != nil {
				t.Fatal(err)
			}
			err := p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker, Options: map[string]string{"driver": "d", "handle": "own"}})
			if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), key.Name) || !strings.Contains(err.Error(), "source file") {
				t.Errorf("%s: %v", key, err)
			}
			if len(h.kv) != 0 || c.Provider(key) != "file" {
				t.Errorf("%s is of %q, journal %v", key, c.Provider(key), h.kv)
			}
			err = p.Create(t.Context(), Request{Name: "mine", FrontEnd: Docker, Options: map[string]string{"claim": "theirs"}})
			if _, owned, _ := p.Owner(t.Context(), "api", source.Key{Kind: resolve.KindClaim, Namespace: "default", Name: "theirs"}); err != nil || owned {
				t.Errorf("option claim: %v; owns the claim: %v", err, owned)
			}
		})
	}
}

// A volume of an earlier version owns its keys as soon as every source has spoken and none has them. Of one that shares a
// name with another source's object no record says who came first: both go on as before, a problem names them, and the
// volume's name is its own once the other's object has gone. A pod of that name is not given to the volume's users.
func TestAVolumeOfAnEarlierVersion(t *testing.T) {
	for _, key := range append(ownedKeys[:2:2], source.Key{}) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost()
			p, _, stop := h.start(t, "1")
			create(t, p, "db", nil)
			stop()
			h.kv["db"] = []byte(strings.Replace(string(h.kv["db"]), `"owns":true`, `"owns":false`, 1))
			spoken := false
			p, c, stop := h.startWith(t, "1", func(cfg *Config) { cfg.Spoken = func() bool { return spoken } })
			defer stop()
			contested := key.Name != ""
			if contested {
				if err := c.Put("api", another(key)); err != nil {
					t.Fatal(err)
				}
			}
			owns := func() bool {
				synctest.Wait()
				return strings.Contains(string(h.kv["db"]), `"owns":true`)
			}
			if owns() {
				t.Fatal("it owns its keys before every source has spoken")
			}
			spoken = true
			p.Wake()
			if owns() == contested || len(p.Problems()) != map[bool]int{true: 1}[contested] {
				t.Errorf("%v: owns %v; problems %v", key, owns(), p.Problems())
			}
			_, owned, err := p.Owner(t.Context(), "api", ownedKeys[1])
			if err != nil || owned != (key != ownedKeys[1]) {
				t.Errorf("%v: the claim belongs to the volume for api: %v, %v", key, owned, err)
			}
			_, err = p.Mount(t.Context(), "db", "c1")
			if refused := key == ownedKeys[0]; (err != nil) != refused || refused && !strings.Contains(err.Error(), "docker.db is not the volume's") {
				t.Errorf("%v: mount: %v", key, err)
			}
			if contested {
				c.Delete("api", key)
			}
			if !owns() || len(p.Problems()) != 0 {
				t.Errorf("%v: afterwards it owns them: %v; problems %v", key, owns(), p.Problems())
			}
			if _, err := p.Mount(t.Context(), "db", "c2"); err != nil {
				t.Errorf("%v: afterwards: %v", key, err)
			}
		})
	}
}

// Before the rows are loaded, whose a key is comes from the journal.
func TestOwnerIsKnownBeforeTheRowsAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost()
		p, c, stop := h.start(t, "1")
		create(t, p, "db", nil)
		stop()
		p = New(Config{KV: h, Catalog: c})
		if n, owned, err := p.Owner(t.Context(), "api", ownedKeys[0]); err != nil || !owned || n.Volume != "db" {
			t.Errorf("%v, %v, %v", n, owned, err)
		}
	})
}

// A volume that is created at a boot, before a manifest with its claim has been read, does not take the claim.
func TestCreateWaitsForTheOtherSources(t *testing.T) {
	for name, speaks := range map[string]bool{"the source speaks": true, "it cannot read its input": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost()
				spoken := make(chan bool, 1)
				spoken <- false
				p, c, stop := h.startWith(t, "1", func(cfg *Config) {
					cfg.Spoken = func() bool { s := <-spoken; spoken <- s; return s }
				})
				defer stop()
				done, begun := make(chan error, 1), time.Now()
				go func() { done <- p.Create(t.Context(), Request{Name: "db", FrontEnd: Docker}) }()
				synctest.Wait()
				if len(done) > 0 {
					t.Fatalf("before the source has spoken: %v", <-done)
				}
				if !speaks {
					if err := <-done; err != nil || time.Since(begun) != source.Grace {
						t.Errorf("after %s: %v", time.Since(begun), err)
					}
					return
				}
				if err := c.Put("file", another(ownedKeys[1])); err != nil {
					t.Fatal(err)
				}
				<-spoken
				spoken <- true
				p.Wake()
				if err := <-done; !errors.Is(err, ErrConflict) || time.Since(begun) != 0 {
					t.Errorf("after %s: %v", time.Since(begun), err)
				}
			})
		})
	}
}

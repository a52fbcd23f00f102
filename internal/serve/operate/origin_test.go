package operate

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/journal"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// What each origin's objects are ended by. A second front end's volume of the same name ends by that one's words.
func TestEachOriginHasItsWords(t *testing.T) {
	pod := source.Key{Kind: resolve.KindPod, Namespace: "shop", Name: "web"}
	claim := source.Key{Kind: resolve.KindClaim, Namespace: "shop", Name: "data"}
	class := source.Key{Kind: resolve.KindClass, Name: "fast"}
	front := func(name, volume string) named.Identity { return named.Identity{FrontEnd: name, Volume: volume} }
	for _, tt := range []struct {
		is   origin
		want string
	}{
		{origin{key: pod, provider: api.Name}, "was applied: csi-volmgr delete pod web -n shop"},
		{origin{key: claim, provider: api.Name}, "was applied: csi-volmgr delete pvc data -n shop"},
		{origin{key: class, provider: api.Name}, "was applied: csi-volmgr delete -f FILE"},
		{origin{key: pod, provider: file.Name, manifests: "/etc/pods"}, "is from a manifest: remove it from the manifests in /etc/pods"},
		{origin{key: pod, provider: file.Name}, "is from a manifest: remove it from that"},
		{origin{key: pod, provider: source.Kube}, "is the cluster's: kubectl delete pod web -n shop"},
		{origin{key: class, provider: source.Kube}, "is the cluster's: kubectl delete storageclass fast"},
		{origin{key: pod, provider: named.Name, of: front(named.Docker, "db_2")}, "belongs to the volume db_2 of Docker or podman: docker volume rm db_2 (with podman: podman volume rm db_2)"},
		{origin{key: pod, provider: named.Name, of: front(named.Mount, "shop/data"), places: []string{"/srv/data"}}, "belongs to the mount of type csi of shop/data: umount /srv/data && csi-volmgr volume remove shop/data"},
		{origin{key: pod, provider: named.Name, of: front(named.Mount, "shop/data")}, "belongs to the mount of type csi of shop/data: umount DIRECTORY && csi-volmgr volume remove shop/data"},
		{origin{key: pod, provider: named.Name, of: front(named.Nomad, "nomad-1a2b")}, "belongs to Nomad's volume 1a2b: nomad volume delete -type host 1a2b"},
		{origin{key: claim, provider: made.Name}, "was made for its claim: it goes with the claim"},
		{origin{key: pod, provider: "other"}, "is from source other: remove it from that"},
	} {
		whose, ends := tt.is.words()
		if got := whose + ": " + ends; got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		for _, text := range []string{tt.is.refused().Error(), tt.is.blocks()} {
			if strings.Contains(text, "in :") || strings.HasSuffix(text, "in ") || !strings.Contains(text, ends) {
				t.Errorf("%s", text)
			}
		}
	}
}

// A claim that a pod names, and that pod, are refused with the words of their owner.
func TestABlockerIsNamedWithItsWords(t *testing.T) {
	var none nothing
	catalog := source.New(source.Config{Resolve: resolve.Config{Layout: state.Layout{Root: "/r"}, NodeName: "n1"}, Sink: none})
	podOf := func(name string, of *named.Identity) *corev1.Pod {
		p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindPod}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-of-web"}}
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		if of != nil {
			p.Annotations = map[string]string{named.VolumeAnnotation: of.FrontEnd + "/" + of.Volume}
		}
		return p
	}
	yes := true
	for _, tt := range []struct {
		provider, name string
		of             *named.Identity
		want           string
	}{
		{api.Name, "web", nil, "pod shop/web: delete that first: csi-volmgr delete pod web -n shop"},
		{file.Name, "web", nil, "pod shop/web, which is from a manifest: remove it from that"},
		{source.Kube, "web", nil, "pod shop/web, which is the cluster's: kubectl delete pod web -n shop"},
		{named.Name, "docker.db2", &named.Identity{FrontEnd: named.Docker, Volume: "db2"}, "pod shop/docker.db2, which belongs to the volume db2 of Docker or podman: docker volume rm db2"},
		{named.Name, "mount.shop.data", &named.Identity{FrontEnd: named.Mount, Volume: "shop/data"}, "umount /srv/data && csi-volmgr volume remove shop/data"},
		// The annotation of an object of another source says nothing.
		{api.Name, "web", &named.Identity{FrontEnd: named.Docker, Volume: "db2"}, "csi-volmgr delete pod web -n shop"},
	} {
		p := podOf(tt.name, tt.of)
		key := source.Key{Kind: resolve.KindPod, Namespace: "shop", Name: tt.name}
		if err := catalog.Put(tt.provider, p); err != nil {
			t.Fatal(err)
		}
		// A claim of the pod's own ends with the pod.
		own := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: resolve.KindClaim}, ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "own", UID: "uid-of-own", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: tt.name, UID: p.UID, Controller: &yes}},
		}}
		own.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		own.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		if err := catalog.Put(tt.provider, own); err != nil {
			t.Fatal(err)
		}
		loaded := make(chan struct{})
		close(loaded)
		o := NewObjects(ObjectsConfig{
			Catalog: catalog, Controller: controller.New(controller.Config{KV: journal.NewMemory(), Usage: none}), Journal: journal.NewMemory(),
			API: api.New(api.Config{KV: journal.NewMemory(), Catalog: catalog}), Loaded: loaded,
		})
		places := func(named.Identity) []string { return []string{"/srv/data"} }
		o.places.Store(&places)
		if got := o.origin(key).blocks(); !strings.Contains(got, tt.want) {
			t.Errorf("as a blocker: got %s\nwant %s", got, tt.want)
		}
		ends := o.PodEnds("shop", tt.name)
		if (ends == "") != (tt.provider == api.Name) || !strings.Contains(o.origin(key).blocks(), ends) {
			t.Errorf("%s: its words are %q", tt.want, ends)
		}
		if got := o.Ends(source.Key{Kind: resolve.KindClaim, Namespace: "shop", Name: "own"}); tt.provider != api.Name && got != ends {
			t.Errorf("its own claim ends by %q, want %q", got, ends)
		}
		if tt.provider != api.Name {
			if err := o.withdraw(t.Context(), key); !errors.Is(err, server.ErrConflict) || !strings.HasSuffix(err.Error(), ends) {
				t.Errorf("delete pod: %v", err)
			}
		}
		catalog.Delete(tt.provider, key)
		catalog.Delete(tt.provider, source.Key{Kind: resolve.KindClaim, Namespace: "shop", Name: "own"})
	}
}

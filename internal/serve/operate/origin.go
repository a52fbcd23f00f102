package operate

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/binding"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/api"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/ephemeral"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/file"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/source"
)

// origin says where an object comes from. It is a value.
type origin struct {
	key      source.Key
	provider string
	// manifests is the directory of manifests; "" if there is none.
	manifests string
	// of is the named volume that the object stands for.
	of named.Identity
	// places are where the host has the named volume mounted, as far as that is known.
	places []string
}

// words says whose the object is, and by which words it ends: those of the program that it belongs to.
func (o origin) words() (whose, ends string) {
	switch o.provider {
	case api.Name:
		if verb := cmp.Or(deleteVerb(o.key.Kind), podVerb(o.key.Kind)); verb != "" {
			return "was applied", fmt.Sprintf("csi-volmgr delete %s %s -n %s", verb, o.key.Name, o.key.Namespace)
		}
		return "was applied", "csi-volmgr delete -f FILE"
	case file.Name:
		if o.manifests == "" {
			return "is from a manifest", "remove it from that"
		}
		return "is from a manifest", "remove it from the manifests in " + o.manifests
	case source.Kube:
		ends := fmt.Sprintf("kubectl delete %s %s", strings.ToLower(o.key.Kind), o.key.Name)
		if o.key.Namespace != "" {
			ends += " -n " + o.key.Namespace
		}
		return "is the cluster's", ends
	case named.Name:
		return "belongs to " + o.of.Whose(), o.of.Ends(o.places)
	case ephemeral.Name:
		return "was made for a pod", "it goes with the pod; see what it waits for: csi-volmgr explain pvc " + o.key.Name +
			" -n " + o.key.Namespace
	case made.Name, binding.Name:
		return "was made for its claim", "it goes with the claim"
	}
	return "is from source " + o.provider, "remove it from that"
}

func podVerb(kind string) string {
	if kind == resolve.KindPod {
		return "pod"
	}
	return ""
}

// origin returns where a listed object comes from; a claim that is owned by a listed pod ends with the pod. The
// provider is "" if no source lists the object.
func (o *Objects) origin(key source.Key) origin {
	obj := o.c.Catalog.Get(key)
	if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
		if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == resolve.KindPod {
			pod := source.Key{Kind: resolve.KindPod, Namespace: key.Namespace, Name: owner.Name}
			if o.c.Catalog.Get(pod) != nil {
				return o.origin(pod)
			}
		}
	}
	is := origin{key: key, provider: o.c.Catalog.Provider(key), manifests: o.c.Manifests}
	if meta, ok := obj.(metav1.Object); ok && is.provider == named.Name {
		is.of = named.IdentityOf(meta)
		if places := o.places.Load(); places != nil {
			is.places = (*places)(is.of)
		}
	}
	return is
}

// Ends returns the words that end the use of a listed object that csi-volmgr delete does not end by its name, or ""
// (named.Claims).
func (o *Objects) Ends(key source.Key) string {
	is := o.origin(key)
	if is.provider == "" || is.provider == api.Name && is.key == key {
		return ""
	}
	_, ends := is.words()
	return ends
}

// PodEnds is Ends for a pod (server.Config).
func (o *Objects) PodEnds(namespace, name string) string {
	return o.Ends(source.Key{Kind: resolve.KindPod, Namespace: namespace, Name: name})
}

// refused returns the refusal to delete an object that was not applied.
func (o origin) refused() error {
	whose, ends := o.words()
	return fmt.Errorf("%w: %s %s: %s", server.ErrConflict, o.key, whose, ends)
}

// blocks names an object that keeps another, and the words that end it.
func (o origin) blocks() string {
	whose, ends := o.words()
	switch o.provider {
	case "":
		return o.key.String()
	case api.Name:
		return fmt.Sprintf("%s: delete that first: %s", o.key, ends)
	}
	return fmt.Sprintf("%s, which %s: %s", o.key, whose, ends)
}

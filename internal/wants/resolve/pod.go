package resolve

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Objects looks up the objects that a pod names. Callers must not modify what it
// returns.
type Objects interface {
	// Get returns the object of the key, or nil if there is none; for the key of
	// KindTrustBundles it returns a list.
	Get(Key) runtime.Object
	// VolumesOf lists, by name, the volumes whose spec.claimRef names the claim.
	VolumesOf(namespace, claim string) []*corev1.PersistentVolume
	// Holders returns the owner of the volume, and lists, sorted, the claims whose spec.volumeName names it.
	Holders(volume string) (Owner, []*corev1.PersistentVolumeClaim)
	// Binding returns the volume that was chosen for a claim that names none.
	Binding(claim Key) Binding
	// Unread says why the object may exist although Get returns nil. It returns ""
	// if the object certainly does not exist.
	Unread(Key) string
}

// Binding is the choice of a volume for a claim.
type Binding struct {
	// Volume is "" if none was chosen.
	Volume string
	// Storage is the volume's [Storage] when it was chosen.
	Storage string
	// Note says, in a sentence, what the claim waits for; "" if that is not known. Cause is the same for programs.
	Note  string
	Cause state.Cause
}

// Config describes the node to the resolver.
type Config struct {
	Layout state.Layout
	// NodeName is the node's name in VolumeAttachment objects.
	NodeName string
	// Builtins lists the plugin names of the kinds that this process serves.
	Builtins []state.DriverName
	// NodeLabels are the node's labels besides its host name, for a node without a cluster.
	NodeLabels map[string]string
	// Allocatable is what pods may use of the node if its Node object does not say.
	// downwardAPI shows it as the limit of a container without limits.
	Allocatable corev1.ResourceList
	// SELinux says which volumes are labelled when they are mounted.
	SELinux SELinux
	// InlineAllow names the namespaces that may have a driver's inline volumes; nil allows all.
	InlineAllow []InlineRule
	// VolumesPerPod is how many volumes the containers of a pod may use; 0 is any number.
	VolumesPerPod int
	// Had returns the names of the volumes that the pod has already. VolumesPerPod does not take them away. nil
	// means that no pod has any.
	Had func(state.Pod) map[string]bool
	// Translate lists the in-tree kinds that are translated to CSI ([translate.Kinds]);
	// nil means all.
	Translate []string
	// Tokens is set if an issuer of service account tokens is available.
	Tokens bool
	// Certificates is set if a cluster's signers issue certificates for pods.
	Certificates bool
	// RevisionKey keys the hash in the Revision of a volume with secrets, so that a
	// reader of the journal cannot guess them. It should not outlive the boot.
	RevisionKey []byte
	// ClusterAttach is set if a cluster attaches volumes. Then a volume that must be
	// attached waits until its VolumeAttachment says so. Otherwise the manager
	// attaches volumes.
	ClusterAttach bool
}

// Pod returns what the pod wants: an entry for each volume that one of its
// containers uses, and none if its containers have ended for good.
func Pod(pod *corev1.Pod, o Objects, c Config) state.PodWant {
	w := state.PodWant{Pod: podOf(pod)}
	if sc := pod.Spec.SecurityContext; sc != nil {
		w.SupplementalGroups = sc.SupplementalGroups
	}
	if hasEnded(pod) {
		w.Stopped = true
		return w
	}
	r := resolver{pod: pod, objects: o, config: c}
	faults := checkIdentity(pod)
	uses := usesOf(pod)
	had, tooMany := r.overLimit(uses)
	w.Volumes = slices.Grow(w.Volumes, len(uses))
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		var want state.VolumeWant
		var err error
		switch {
		case len(faults) > 0:
			err = r.fault(faults[0])
		case tooMany != nil && !had[name]:
			err = tooMany
		default:
			want, err = r.volume(name, uses[name])
		}
		if err != nil {
			want = state.VolumeWant{Problem: err.Error(), Unread: errors.Is(err, errUnread), Claim: claimOf(pod, name)}
			if c, ok := errors.AsType[causeError](err); ok {
				want.Cause = c.cause
			}
			if l, ok := errors.AsType[labelError](err); ok {
				want.SELinux = l.wish
			}
		}
		want.Names = []string{name}
		w.Volumes = append(w.Volumes, want)
	}
	w.Volumes = mergeSame(w.Volumes)
	askForPeers(pod, w.Volumes)
	refuseSharedTargets(w.Volumes)
	return w
}

// claimOf returns namespace/name of the claim of the pod's volume, or "" if it has none.
func claimOf(pod *corev1.Pod, volume string) string {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.PersistentVolumeClaim != nil:
			return pod.Namespace + "/" + v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			return pod.Namespace + "/" + pod.Name + "-" + v.Name
		}
	}
	return ""
}

// resolver resolves the volumes of one pod.
type resolver struct {
	pod     *corev1.Pod
	objects Objects
	config  Config
}

// unread returns an error if the object could not be read. Then it may exist, and
// the caller must not treat it as deleted.
func (r *resolver) unread(key Key) error {
	if why := r.objects.Unread(key); why != "" {
		return unreadError{fmt.Sprintf("%s: %s", key, why)}
	}
	return nil
}

// causeError is an error with its cause for programs.
type causeError struct {
	error
	cause state.Cause
}

func (e causeError) Unwrap() error { return e.error }

// because adds a cause to err.
func because(code state.CauseCode, of string, err error) error {
	return causeError{err, state.Cause{Code: code, Of: of}}
}

// errUnread means that an object could not be read, so that it may exist.
var errUnread = errors.New("not read")

// unreadError is an errUnread with its own text.
type unreadError struct{ text string }

func (e unreadError) Error() string        { return e.text }
func (e unreadError) Is(target error) bool { return target == errUnread }

func podOf(pod *corev1.Pod) state.Pod {
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default" // what the API server would have filled in
	}
	return state.Pod{UID: state.PodUID(pod.UID), Namespace: pod.Namespace, Name: pod.Name, ServiceAccount: account}
}

// use holds the first volumeMounts field and the first volumeDevices field of the
// pod that name a volume; "" if none does.
type use struct{ mount, device string }

// usesOf returns how init, regular and ephemeral containers use volumes, by volume name.
func usesOf(pod *corev1.Pod) map[string]use {
	uses := map[string]use{}
	eachUse(pod, func(name, field string, device bool) {
		u := uses[name]
		switch {
		case device && u.device == "":
			u.device = field
		case !device && u.mount == "":
			u.mount = field
		}
		uses[name] = u
	})
	return uses
}

// eachUse calls f for every volumeMount and volumeDevice of the pod.
func eachUse(pod *corev1.Pod, f func(name, field string, device bool)) {
	each := func(list string, i int, mounts []corev1.VolumeMount, devices []corev1.VolumeDevice) {
		for j, m := range mounts {
			f(m.Name, fmt.Sprintf("spec.%s[%d].volumeMounts[%d]", list, i, j), false)
		}
		for j, d := range devices {
			f(d.Name, fmt.Sprintf("spec.%s[%d].volumeDevices[%d]", list, i, j), true)
		}
	}
	for i, c := range pod.Spec.InitContainers {
		each("initContainers", i, c.VolumeMounts, c.VolumeDevices)
	}
	for i, c := range pod.Spec.Containers {
		each("containers", i, c.VolumeMounts, c.VolumeDevices)
	}
	for i, c := range pod.Spec.EphemeralContainers {
		each("ephemeralContainers", i, c.VolumeMounts, c.VolumeDevices)
	}
}

// find returns the pod's volume called name and its field.
func (r *resolver) find(name string, u use) (*corev1.Volume, string, error) {
	var found *corev1.Volume
	var field string
	for i := range r.pod.Spec.Volumes {
		if r.pod.Spec.Volumes[i].Name != name {
			continue
		}
		if found != nil {
			return nil, "", r.fault(Fault{
				fmt.Sprintf("spec.volumes[%d].name", i), name,
				"a name that no other volume of the pod has",
			})
		}
		found, field = &r.pod.Spec.Volumes[i], fmt.Sprintf("spec.volumes[%d]", i)
	}
	if found == nil {
		by := u.mount
		if by == "" {
			by = u.device
		}
		return nil, "", r.fault(Fault{by + ".name", name, "the name of one of the pod's spec.volumes"})
	}
	if f, bad := checkLabel(field+".name", name); bad {
		return nil, "", r.fault(f)
	}
	return found, field, nil
}

// volume resolves one volume that the pod's containers use.
func (r *resolver) volume(name string, u use) (state.VolumeWant, error) {
	v, field, err := r.find(name, u)
	if err != nil {
		return state.VolumeWant{}, err
	}
	source, f, bad := sourceKind(field, v.VolumeSource)
	if bad {
		return state.VolumeWant{}, r.fault(f)
	}
	switch source {
	case "persistentVolumeClaim":
		src := v.PersistentVolumeClaim
		return r.claimed(claimUse{volume: v.Name, name: src.ClaimName, readOnly: src.ReadOnly, use: u})
	case "ephemeral":
		return r.claimed(claimUse{volume: v.Name, name: EphemeralClaim(r.pod, *v).Name, owned: true, use: u})
	}
	if u.device != "" {
		return state.VolumeWant{}, fmt.Errorf(
			"%s: %s: volume %q is of kind %s, which is no raw block volume; want it under volumeMounts",
			r.name(), u.device, v.Name, source)
	}
	return r.written(v, source, field)
}

// written resolves a volume whose source is in the pod's spec.
func (r *resolver) written(v *corev1.Volume, source, field string) (state.VolumeWant, error) {
	at := field + "." + source
	if k, ok := r.serves(source, false); ok && k.Network {
		if err := r.checkInlineAllowed(k.Name, at); err != nil {
			return state.VolumeWant{}, err
		}
	}
	k, ok := r.serves(source, v.CephFS != nil && v.CephFS.SecretRef != nil)
	switch {
	case source == "csi":
		return r.inline(v, at)
	case ok && k.Pod:
		return sourcesOf(k.Name).pod(r, v, at)
	case r.translates(source):
		return r.inTree(v, at)
	}
	return state.VolumeWant{}, fmt.Errorf("%s: %s: %s", r.name(), field, r.lacks(source, r.kinds()))
}

func (r *resolver) has(name state.DriverName) bool { return slices.Contains(r.config.Builtins, name) }

// name returns the pod's name for messages, such as "pod default/web".
func (r *resolver) name() string {
	return Key{KindPod, r.pod.Namespace, r.pod.Name}.String()
}

// fault returns a fault of the pod as an error.
func (r *resolver) fault(f Fault) error { return errors.New(r.name() + ": " + f.String()) }

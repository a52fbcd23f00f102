package resolve

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// SELinux says which volumes get their label by a mount option, instead of having
// the container runtime relabel each file. The zero value selects none.
type SELinux struct {
	// FileLabel is the host's label for files of containers
	// ("system_u:object_r:container_file_t:s0"), in which a pod's options replace
	// user and level; "" if the host has no SELinux.
	FileLabel string
	// AllModes selects volumes of every access mode, not only ReadWriteOncePod
	// (KEP-1710, feature gate SELinuxMount, which is on since Kubernetes 1.37).
	AllModes bool
}

// labelPart matches a valid user or level of a label, which becomes part of a
// quoted mount option.
var labelPart = regexp.MustCompile(`^[A-Za-z0-9_.:,-]*$`)

// label sets the label with which w's volume, called name in the pod, must be mounted.
// If the access modes leave labelling to the runtime it only sets the wish, which has
// the label that the mount would have had.
func (r *resolver) label(w *state.VolumeWant, name string, supported bool) error {
	s := w.Spec
	if r.config.SELinux.FileLabel == "" || !supported || s.Mode == state.Block || s.Ephemeral {
		return nil
	}
	wish := &state.SELinuxWish{
		Applied: r.config.SELinux.AllModes || len(s.AccessModes) == 1 && s.AccessModes[0] == state.ReadWriteOncePod,
	}
	w.SELinux = wish
	if relabelsRecursively(r.pod) {
		return nil
	}
	var problem error
	wish.Label, wish.Fault, problem = r.podLabel(name)
	if wish.Fault != "" {
		wish.AccessModes = s.AccessModes
	}
	if !wish.Applied {
		return nil // the runtime labels the files, or refuses the label
	}
	if problem != nil {
		return labelError{problem, wish}
	}
	w.Mount.SELinuxLabel = wish.Label
	return nil
}

// labelError says why there is no single label to mount a pod's volume with.
type labelError struct {
	error
	wish *state.SELinuxWish
}

func (e labelError) Unwrap() error { return e.error }

// podLabel returns the label that the pod's containers ask for on the volume, or "" if
// they ask for none. fault and problem are set if the label is invalid or not unique.
func (r *resolver) podLabel(name string) (label string, fault state.SELinuxFault, problem error) {
	var labels []string
	for _, o := range r.seLinuxOptions(name) {
		if !labelPart.MatchString(o.User) || !labelPart.MatchString(o.Level) {
			return "", state.SELinuxOptions, r.fault(Fault{
				"securityContext.seLinuxOptions", o.User + ":" + o.Level,
				"user and level of letters, digits and _ . : , -",
			})
		}
		if l := fileLabel(r.config.SELinux.FileLabel, o); !slices.Contains(labels, l) {
			labels = append(labels, l)
		}
	}
	slices.Sort(labels)
	label = strings.Join(labels, " and ")
	if len(labels) > 1 {
		return label, state.SELinuxContainers, errors.New(r.name() + ": multiple SELinux labels of volume " + show(name) +
			": its containers have " + label + "; want one, or securityContext.seLinuxChangePolicy: Recursive")
	}
	return label, "", nil
}

func relabelsRecursively(pod *corev1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive
}

// seLinuxOptions lists the options of the containers that mount the volume: their
// own, or else the pod's. A privileged container counts like any other.
func (r *resolver) seLinuxOptions(name string) []corev1.SELinuxOptions {
	var all []corev1.SELinuxOptions
	add := func(mounts []corev1.VolumeMount, own *corev1.SecurityContext) {
		if !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == name }) {
			return
		}
		var o *corev1.SELinuxOptions
		if own != nil && own.SELinuxOptions != nil {
			o = own.SELinuxOptions
		} else if sc := r.pod.Spec.SecurityContext; sc != nil {
			o = sc.SELinuxOptions
		}
		if o != nil && *o != (corev1.SELinuxOptions{}) {
			all = append(all, *o)
		}
	}
	for _, c := range r.pod.Spec.InitContainers {
		add(c.VolumeMounts, c.SecurityContext)
	}
	for _, c := range r.pod.Spec.Containers {
		add(c.VolumeMounts, c.SecurityContext)
	}
	for _, c := range r.pod.Spec.EphemeralContainers {
		add(c.VolumeMounts, c.SecurityContext)
	}
	return all
}

// fileLabel returns base with the options' user and level. Role and type apply to
// processes, not files. Without a level it returns "", because the runtime will pick
// a random one.
func fileLabel(base string, o corev1.SELinuxOptions) string {
	parts := strings.SplitN(base, ":", 4)
	if len(parts) != 4 || o.Level == "" {
		return ""
	}
	if o.User != "" {
		parts[0] = o.User
	}
	return fmt.Sprintf("%s:%s:%s:%s", parts[0], parts[1], parts[2], o.Level)
}

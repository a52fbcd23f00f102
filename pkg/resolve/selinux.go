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

// SELinux says which volumes are labelled when they are mounted, instead of
// file by file by the container runtime. The zero value is none.
type SELinux struct {
	// FileLabel is the host's label for files of containers
	// ("system_u:object_r:container_file_t:s0"); a pod's options
	// replace user and level; "" where the host has no SELinux.
	FileLabel string
	// AllModes: volumes of every access mode, and not only ReadWriteOncePod
	// (KEP-1710, feature gate SELinuxMount, which is on since Kubernetes 1.37).
	AllModes bool
}

// labelPart is what user and level of a label may be: it becomes part of a
// mount option in quotes.
var labelPart = regexp.MustCompile(`^[A-Za-z0-9_.:,-]*$`)

// label sets the label with which the want's volume, called name in the pod, is to be
// mounted. Where the volume's access modes leave labels to the runtime the wish says what
// the label would be.
func (r *resolver) label(w *state.VolumeWant, name string, supported bool) error {
	s := w.Spec
	if r.config.SELinux.FileLabel == "" || !supported || s.Mode == state.Block || s.Ephemeral {
		return nil
	}
	wish := &state.SELinuxWish{
		Applied: r.config.SELinux.AllModes || len(s.AccessModes) == 1 && s.AccessModes[0] == state.ReadWriteOncePod,
	}
	w.SELinux = wish
	if recursive(r.pod) {
		return nil
	}
	var problem error
	wish.Label, wish.Fault, problem = r.podLabel(name)
	if wish.Fault != "" {
		wish.AccessModes = s.AccessModes
	}
	if !wish.Applied {
		return nil // the runtime's to refuse
	}
	if problem != nil {
		return labelError{problem, wish}
	}
	w.Mount.SELinuxLabel = wish.Label
	return nil
}

// labelError is why a pod has no one label for a volume that is to be mounted with it.
type labelError struct {
	error
	wish *state.SELinuxWish
}

func (e labelError) Unwrap() error { return e.error }

// podLabel returns the label that the pod's containers ask for the volume, "" where they
// ask for none, and what is wrong where it is not one.
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

func recursive(pod *corev1.Pod) bool {
	sc := pod.Spec.SecurityContext
	return sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive
}

// seLinuxOptions lists the options of the containers that mount the volume:
// their own, or else the pod's. Whether a container is privileged does not count.
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

// fileLabel is base with the options' user and level. Role and type are of the
// process and say nothing about files. Without a level the runtime draws one,
// which is not known before: then there is no label.
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

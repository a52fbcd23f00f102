package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

// Labels and annotations of the sandboxes and containers that this agent makes. Other
// programs (csi-volmgr, crictl) identify pods and containers by Kubernetes' labels.
const (
	labelNode      = "agent.csi-volmgr.dev/node"
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
	annQuick       = "agent.csi-volmgr.dev/quick-ends"
)

// maker builds the configurations of one pod's sandboxes and containers.
type maker struct {
	pod          *corev1.Pod
	node, ip     string
	logs         string  // the directory of all pods' output
	volumeGroups []int64 // that the pod's volumes ask for
}

func (m maker) labels() map[string]string {
	return map[string]string{
		labelNode: m.node, labelPod: m.pod.Name, labelNamespace: m.pod.Namespace, labelUID: string(m.pod.UID),
	}
}

// sandbox returns the pod's sandbox: in the host's network and its other namespaces if
// the pod asks for them.
func (m maker) sandbox(attempt uint32) *runtimev1.PodSandboxConfig {
	return &runtimev1.PodSandboxConfig{
		Metadata: &runtimev1.PodSandboxMetadata{
			Name: m.pod.Name, Namespace: m.pod.Namespace, Uid: string(m.pod.UID), Attempt: attempt,
		},
		LogDirectory: m.logDirectory(), Labels: m.labels(),
		Linux: &runtimev1.LinuxPodSandboxConfig{SecurityContext: &runtimev1.LinuxSandboxSecurityContext{
			NamespaceOptions: m.namespaces(), SupplementalGroups: m.groups(), Privileged: m.privileged(),
		}},
	}
}

func (m maker) logDirectory() string {
	return filepath.Join(m.logs, m.pod.Namespace+"_"+m.pod.Name+"_"+string(m.pod.UID))
}

func (m maker) namespaces() *runtimev1.NamespaceOption {
	n := &runtimev1.NamespaceOption{Network: runtimev1.NamespaceMode_NODE, Pid: runtimev1.NamespaceMode_CONTAINER}
	if s := m.pod.Spec.ShareProcessNamespace; s != nil && *s {
		n.Pid = runtimev1.NamespaceMode_POD
	}
	if m.pod.Spec.HostPID {
		n.Pid = runtimev1.NamespaceMode_NODE
	}
	if m.pod.Spec.HostIPC {
		n.Ipc = runtimev1.NamespaceMode_NODE
	}
	return n
}

// groups returns the pod's groups, its fsGroup, and those that its volumes ask for.
func (m maker) groups() []int64 {
	groups := m.volumeGroups
	if s := m.pod.Spec.SecurityContext; s != nil {
		groups = append(groups[:len(groups):len(groups)], s.SupplementalGroups...)
		if s.FSGroup != nil {
			groups = append(groups, *s.FSGroup)
		}
	}
	return groups
}

func (m maker) privileged() bool {
	for _, c := range slices.Concat(m.pod.Spec.InitContainers, m.pod.Spec.Containers) {
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			return true
		}
	}
	return false
}

// container returns one run of c with the mounts that csi-volmgr gives it.
func (m maker) container(s step, image string, given []node.ContainerMount) *runtimev1.ContainerConfig {
	c := s.container
	labels := m.labels()
	labels[labelContainer] = c.Name
	out := &runtimev1.ContainerConfig{
		Metadata: &runtimev1.ContainerMetadata{Name: c.Name, Attempt: s.attempt}, Image: &runtimev1.ImageSpec{Image: image},
		WorkingDir: c.WorkingDir, Labels: labels, Annotations: map[string]string{annQuick: strconv.Itoa(s.quick)},
		LogPath: filepath.Join(c.Name, fmt.Sprintf("%d.log", s.attempt)),
		Linux:   &runtimev1.LinuxContainerConfig{Resources: resources(c), SecurityContext: m.security(c)},
	}
	env := map[string]string{}
	for _, e := range c.Env {
		value, _ := fieldOf(m.pod, e, m.ip) // unknown fields were refused
		if e.ValueFrom == nil {
			value = expand(value, env)
		}
		env[e.Name] = value
		out.Envs = append(out.Envs, &runtimev1.KeyValue{Key: e.Name, Value: []byte(value)})
	}
	for _, word := range c.Command {
		out.Command = append(out.Command, expand(word, env))
	}
	for _, word := range c.Args {
		out.Args = append(out.Args, expand(word, env))
	}
	for _, g := range given {
		if g.Device {
			d := &runtimev1.Device{HostPath: g.HostPath, ContainerPath: g.ContainerPath, Permissions: g.Permissions}
			out.Devices = append(out.Devices, d)
			continue
		}
		out.Mounts = append(out.Mounts, &runtimev1.Mount{
			HostPath: g.HostPath, ContainerPath: g.ContainerPath, Readonly: g.ReadOnly, RecursiveReadOnly: g.RecursiveReadOnly,
			SelinuxRelabel: g.SELinuxRelabel, Propagation: propagations[g.Propagation], MountOptions: g.MountOptions,
		})
	}
	return out
}

// propagations maps the kernel's words to CRI's.
var propagations = map[string]runtimev1.MountPropagation{
	"rprivate": runtimev1.MountPropagation_PROPAGATION_PRIVATE,
	"rslave":   runtimev1.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	"rshared":  runtimev1.MountPropagation_PROPAGATION_BIDIRECTIONAL,
}

func (m maker) security(c *corev1.Container) *runtimev1.LinuxContainerSecurityContext {
	out := &runtimev1.LinuxContainerSecurityContext{NamespaceOptions: m.namespaces(), SupplementalGroups: m.groups()}
	user, _ := userOf(m.pod, c)
	if user != nil {
		out.RunAsUser = &runtimev1.Int64Value{Value: *user}
	}
	if s := m.pod.Spec.SecurityContext; s != nil && s.RunAsGroup != nil && user != nil {
		out.RunAsGroup = &runtimev1.Int64Value{Value: *s.RunAsGroup}
	}
	s := c.SecurityContext
	if s == nil {
		return out
	}
	if s.RunAsGroup != nil && user != nil {
		out.RunAsGroup = &runtimev1.Int64Value{Value: *s.RunAsGroup}
	}
	out.Privileged = s.Privileged != nil && *s.Privileged
	out.ReadonlyRootfs = s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
	out.NoNewPrivs = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	if s.Capabilities != nil {
		out.Capabilities = &runtimev1.Capability{
			AddCapabilities: words(s.Capabilities.Add), DropCapabilities: words(s.Capabilities.Drop),
		}
	}
	return out
}

func words[T ~string](in []T) (out []string) {
	for _, w := range in {
		out = append(out, string(w))
	}
	return out
}

// resources returns a container's limits in the kernel's terms.
func resources(c *corev1.Container) *runtimev1.LinuxContainerResources {
	const period, leastShares, leastQuota = 100000, 2, 1000
	out := &runtimev1.LinuxContainerResources{
		CpuShares:          max(leastShares, c.Resources.Requests.Cpu().MilliValue()*1024/1000),
		MemoryLimitInBytes: c.Resources.Limits.Memory().Value(),
	}
	if limit := c.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		out.CpuPeriod, out.CpuQuota = period, max(leastQuota, limit*period/1000)
	}
	return out
}

var reference = regexp.MustCompile(`\$\$|\$\([^()]+\)`)

// expand replaces $(NAME) as Kubernetes does: an unknown name stays, $$ is a $.
func expand(text string, env map[string]string) string {
	return reference.ReplaceAllStringFunc(text, func(r string) string {
		if r == "$$" {
			return "$"
		}
		if value, ok := env[strings.Trim(r, "$()")]; ok {
			return value
		}
		return r
	})
}

package main

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/csi-volmgr/csi-volmgr/pkg/node"
)

func ptr[T any](v T) *T { return &v }

func TestSandbox(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, false)
	p.Spec.HostPID, p.Spec.HostIPC = true, true
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(7)), SupplementalGroups: []int64{5}}
	p.Spec.Containers[1].SecurityContext = &corev1.SecurityContext{Privileged: ptr(true)}
	c := maker{pod: p, node: "n", logs: "/logs", volumeGroups: []int64{3}}.sandbox(2)
	s := c.GetLinux().GetSecurityContext()
	ns := s.GetNamespaceOptions()
	if ns.GetNetwork() != runtimev1.NamespaceMode_NODE || ns.GetPid() != runtimev1.NamespaceMode_NODE || ns.GetIpc() != runtimev1.NamespaceMode_NODE {
		t.Errorf("namespaces: %v", ns)
	}
	if !slices.Equal(s.GetSupplementalGroups(), []int64{3, 5, 7}) || !s.GetPrivileged() {
		t.Errorf("security: %v", s)
	}
	if c.GetLogDirectory() != "/logs/default_web_u" || c.GetMetadata().GetAttempt() != 2 || c.GetLabels()[labelUID] != "u" || c.GetLabels()[labelNode] != "n" {
		t.Errorf("sandbox: %v", c)
	}
	p.Spec.HostPID, p.Spec.HostIPC, p.Spec.ShareProcessNamespace, p.Spec.Containers[1].SecurityContext = false, false, ptr(true), nil
	s = maker{pod: p}.sandbox(0).GetLinux().GetSecurityContext()
	if ns := s.GetNamespaceOptions(); ns.GetPid() != runtimev1.NamespaceMode_POD || ns.GetIpc() != runtimev1.NamespaceMode_POD || s.GetPrivileged() {
		t.Errorf("namespaces: %v", ns)
	}
}

func TestContainer(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, false)
	p.Labels = map[string]string{"app": "w"}
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000)), RunAsGroup: ptr(int64(100))}
	c := &p.Spec.Containers[0]
	c.Command, c.Args, c.WorkingDir = []string{"/bin/$(WHO)", "$$(WHO)"}, []string{"$(MISSING)", "$(BOTH)"}, "/w"
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	c.Env = []corev1.EnvVar{field("WHO", "metadata.name"), {Name: "BOTH", Value: "$(WHO)-$(APP)"}, field("APP", "metadata.labels['app']"), field("IP", "status.podIP")}
	c.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("500m")}
	c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Mi")}
	c.SecurityContext = &corev1.SecurityContext{
		RunAsUser: ptr(int64(2000)), ReadOnlyRootFilesystem: ptr(true), AllowPrivilegeEscalation: ptr(false),
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
	}
	given := []node.ContainerMount{
		{HostPath: "/h/a", ContainerPath: "/a", ReadOnly: true, Propagation: "rprivate"},
		{HostPath: "/h/b", ContainerPath: "/b", Propagation: "rslave", SELinuxRelabel: true},
		{HostPath: "/h/c", ContainerPath: "/c", Propagation: "rshared", RecursiveReadOnly: true},
		{HostPath: "/dev/loop9", ContainerPath: "/dev/x", Device: true, Permissions: "r"},
	}
	got := maker{pod: p, ip: "192.0.2.7"}.container(step{container: c, attempt: 3, quick: 2}, "sha256:1", given)
	if words := fmt.Sprint(got.GetCommand(), got.GetArgs()); words != "[/bin/web $(WHO)] [$(MISSING) web-$(APP)]" {
		t.Errorf("words: %s", words)
	}
	var env []string
	for _, e := range got.GetEnvs() {
		env = append(env, e.GetKey()+"="+string(e.GetValue()))
	}
	if fmt.Sprint(env) != "[WHO=web BOTH=web-$(APP) APP=w IP=192.0.2.7]" {
		t.Errorf("env: %v", env)
	}
	if got.GetImage().GetImage() != "sha256:1" || got.GetLogPath() != "a/3.log" || got.GetAnnotations()[annQuick] != "2" || got.GetWorkingDir() != "/w" || got.GetMetadata().GetAttempt() != 3 {
		t.Errorf("container: %v", got)
	}
	var mounts []string
	for _, m := range got.GetMounts() {
		mounts = append(mounts, fmt.Sprintf("%s %s %t %t %t %s", m.GetHostPath(), m.GetContainerPath(), m.GetReadonly(), m.GetRecursiveReadOnly(), m.GetSelinuxRelabel(), m.GetPropagation()))
	}
	if want := []string{
		"/h/a /a true false false PROPAGATION_PRIVATE", "/h/b /b false false true PROPAGATION_HOST_TO_CONTAINER", "/h/c /c false true false PROPAGATION_BIDIRECTIONAL",
	}; !slices.Equal(mounts, want) {
		t.Errorf("mounts: %q", mounts)
	}
	if d := got.GetDevices(); len(d) != 1 || d[0].GetHostPath() != "/dev/loop9" || d[0].GetContainerPath() != "/dev/x" || d[0].GetPermissions() != "r" {
		t.Errorf("devices: %v", d)
	}
	if r := got.GetLinux().GetResources(); r.GetCpuShares() != 512 || r.GetCpuQuota() != 200000 || r.GetCpuPeriod() != 100000 || r.GetMemoryLimitInBytes() != 1<<20 {
		t.Errorf("resources: %v", r)
	}
	s := got.GetLinux().GetSecurityContext()
	if s.GetRunAsUser().GetValue() != 2000 || s.GetRunAsGroup().GetValue() != 100 || !s.GetReadonlyRootfs() || !s.GetNoNewPrivs() || s.GetPrivileged() ||
		fmt.Sprint(s.GetCapabilities().GetAddCapabilities(), s.GetCapabilities().GetDropCapabilities()) != "[NET_ADMIN] [ALL]" {
		t.Errorf("security: %v", s)
	}
}

func TestRefusal(t *testing.T) {
	if why := refusal(pod(corev1.RestartPolicyAlways, true)); why != "" {
		t.Errorf("a plain pod is refused: %s", why)
	}
	for field, spoil := range map[string]func(*corev1.PodSpec){
		"spec.hostNetwork: false":              func(s *corev1.PodSpec) { s.HostNetwork = false },
		"spec.hostUsers: false":                func(s *corev1.PodSpec) { s.HostUsers = ptr(false) },
		"spec.runtimeClassName":                func(s *corev1.PodSpec) { s.RuntimeClassName = ptr("x") },
		"spec.hostAliases":                     func(s *corev1.PodSpec) { s.HostAliases = []corev1.HostAlias{{}} },
		"spec.dnsConfig":                       func(s *corev1.PodSpec) { s.DNSConfig = &corev1.PodDNSConfig{} },
		"spec.dnsPolicy: None":                 func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSNone },
		"spec.activeDeadlineSeconds":           func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = ptr(int64(1)) },
		"spec.imagePullSecrets":                func(s *corev1.PodSpec) { s.ImagePullSecrets = []corev1.LocalObjectReference{{}} },
		"spec.readinessGates":                  func(s *corev1.PodSpec) { s.ReadinessGates = []corev1.PodReadinessGate{{}} },
		"spec.resourceClaims":                  func(s *corev1.PodSpec) { s.ResourceClaims = []corev1.PodResourceClaim{{}} },
		"spec.resources":                       func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{} },
		"spec.setHostnameAsFQDN":               func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = ptr(true) },
		"spec.securityContext.sysctls":         func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{}}} },
		"spec.initContainers[0].restartPolicy": func(s *corev1.PodSpec) { s.InitContainers[0].RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways) },
		"spec.initContainers[0].lifecycle":     func(s *corev1.PodSpec) { s.InitContainers[0].Lifecycle = &corev1.Lifecycle{} },
		"spec.containers[1].livenessProbe":     func(s *corev1.PodSpec) { s.Containers[1].LivenessProbe = &corev1.Probe{} },
		"spec.containers[1].readinessProbe":    func(s *corev1.PodSpec) { s.Containers[1].ReadinessProbe = &corev1.Probe{} },
		"spec.containers[1].startupProbe":      func(s *corev1.PodSpec) { s.Containers[1].StartupProbe = &corev1.Probe{} },
		"spec.containers[0].envFrom":           func(s *corev1.PodSpec) { s.Containers[0].EnvFrom = []corev1.EnvFromSource{{}} },
		"spec.containers[0].env[0].valueFrom": func(s *corev1.PodSpec) {
			s.Containers[0].Env = []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
		},
		"spec.containers[0].stdin or tty": func(s *corev1.PodSpec) { s.Containers[0].TTY = true },
		"spec.containers[0].securityContext.seccompProfile": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{}}
		},
		"spec.containers[0].securityContext.runAsNonRoot without a runAsUser that is not 0": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr(true)}
		},
	} {
		p := pod(corev1.RestartPolicyAlways, true)
		spoil(&p.Spec)
		if got := refusal(p); got != "this node's agent does not do "+field {
			t.Errorf("%s: got %q", field, got)
		}
	}
}

func TestFieldsOfAPod(t *testing.T) {
	p := pod(corev1.RestartPolicyAlways, false)
	p.Spec.NodeName, p.Spec.ServiceAccountName, p.Annotations = "n", "sa", map[string]string{"k": "v"}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "default", "metadata.uid": "u", "spec.nodeName": "n", "spec.serviceAccountName": "sa",
		"status.hostIP": "192.0.2.7", "metadata.annotations['k']": "v", "metadata.labels['none']": "",
	} {
		e := corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
		if got, ok := fieldOf(p, e, "192.0.2.7"); !ok || got != want {
			t.Errorf("%s: %q, %t", path, got, ok)
		}
	}
	e := corev1.EnvVar{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.else"}}}
	if _, ok := fieldOf(p, e, ""); ok {
		t.Error("a field that is not known has a value")
	}
}

func TestFlagsOfTheNode(t *testing.T) {
	if got, err := pairs("a=b,c="); err != nil || fmt.Sprint(got) != "map[a:b c:]" {
		t.Errorf("labels: %v, %v", got, err)
	}
	if _, err := pairs("a"); err == nil {
		t.Error("a label without = is taken")
	}
	got, err := taints("k=v:NoSchedule,l:NoExecute")
	if want := []corev1.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}, {Key: "l", Effect: "NoExecute"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("taints: %v, %v", got, err)
	}
	if _, err := taints("k=v"); err == nil {
		t.Error("a taint without an effect is taken")
	}
}

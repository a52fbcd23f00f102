package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refusal names the fields of a pod that this agent does not support, or returns "".
func refusal(pod *corev1.Pod) string {
	s := &pod.Spec
	var found []string
	no := func(is bool, field string) {
		if is {
			found = append(found, field)
		}
	}
	no(!s.HostNetwork, "spec.hostNetwork: false")
	no(s.HostUsers != nil && !*s.HostUsers, "spec.hostUsers: false")
	no(s.RuntimeClassName != nil, "spec.runtimeClassName")
	no(len(s.HostAliases) > 0, "spec.hostAliases")
	no(s.DNSConfig != nil, "spec.dnsConfig")
	no(s.DNSPolicy == corev1.DNSNone || s.DNSPolicy == corev1.DNSClusterFirstWithHostNet, "spec.dnsPolicy: "+string(s.DNSPolicy))
	no(s.ActiveDeadlineSeconds != nil, "spec.activeDeadlineSeconds")
	no(len(s.ImagePullSecrets) > 0, "spec.imagePullSecrets")
	no(len(s.ReadinessGates) > 0, "spec.readinessGates")
	no(len(s.ResourceClaims) > 0, "spec.resourceClaims")
	no(s.Resources != nil, "spec.resources")
	no(s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN, "spec.setHostnameAsFQDN")
	if c := s.SecurityContext; c != nil {
		no(c.SELinuxOptions != nil, "spec.securityContext.seLinuxOptions")
		no(c.SeccompProfile != nil, "spec.securityContext.seccompProfile")
		no(c.AppArmorProfile != nil, "spec.securityContext.appArmorProfile")
		no(len(c.Sysctls) > 0, "spec.securityContext.sysctls")
		no(c.SupplementalGroupsPolicy != nil && *c.SupplementalGroupsPolicy != corev1.SupplementalGroupsPolicyMerge, "spec.securityContext.supplementalGroupsPolicy")
		no(c.WindowsOptions != nil, "spec.securityContext.windowsOptions")
	}
	for i := range s.InitContainers {
		at := fmt.Sprintf("spec.initContainers[%d]", i)
		no(s.InitContainers[i].RestartPolicy != nil, at+".restartPolicy")
		found = append(found, refusedOf(at, pod, &s.InitContainers[i])...)
	}
	for i := range s.Containers {
		found = append(found, refusedOf(fmt.Sprintf("spec.containers[%d]", i), pod, &s.Containers[i])...)
	}
	if len(found) == 0 {
		return ""
	}
	return "this node's agent does not do " + strings.Join(found, ", ")
}

// refusedOf names the unsupported fields of one container.
func refusedOf(at string, pod *corev1.Pod, c *corev1.Container) (found []string) {
	no := func(is bool, field string) {
		if is {
			found = append(found, at+"."+field)
		}
	}
	no(c.LivenessProbe != nil, "livenessProbe")
	no(c.ReadinessProbe != nil, "readinessProbe")
	no(c.StartupProbe != nil, "startupProbe")
	no(c.Lifecycle != nil, "lifecycle")
	no(len(c.EnvFrom) > 0, "envFrom")
	no(len(c.RestartPolicyRules) > 0, "restartPolicyRules")
	no(len(c.Resources.Claims) > 0, "resources.claims")
	no(c.Stdin || c.TTY, "stdin or tty")
	for i, e := range c.Env {
		if _, ok := fieldOf(pod, e, ""); !ok {
			no(true, fmt.Sprintf("env[%d].valueFrom", i))
		}
	}
	if s := c.SecurityContext; s != nil {
		no(s.SELinuxOptions != nil, "securityContext.seLinuxOptions")
		no(s.SeccompProfile != nil, "securityContext.seccompProfile")
		no(s.AppArmorProfile != nil, "securityContext.appArmorProfile")
		no(s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount, "securityContext.procMount")
		no(s.WindowsOptions != nil, "securityContext.windowsOptions")
	}
	user, must := userOf(pod, c)
	no(must && (user == nil || *user == 0), "securityContext.runAsNonRoot without a runAsUser that is not 0")
	return found
}

// userOf returns the user of a container, and whether it must not be root.
func userOf(pod *corev1.Pod, c *corev1.Container) (user *int64, notRoot bool) {
	if s := pod.Spec.SecurityContext; s != nil {
		user, notRoot = s.RunAsUser, s.RunAsNonRoot != nil && *s.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if s.RunAsNonRoot != nil {
			notRoot = *s.RunAsNonRoot
		}
	}
	return user, notRoot
}

// fieldOf returns the value of an environment variable, and whether this agent
// knows how to get it.
func fieldOf(pod *corev1.Pod, e corev1.EnvVar, ip string) (value string, ok bool) {
	switch {
	case e.ValueFrom == nil:
		return e.Value, true
	case e.ValueFrom.FieldRef == nil:
		return "", false
	}
	switch path := e.ValueFrom.FieldRef.FieldPath; path {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "spec.nodeName":
		return pod.Spec.NodeName, true
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, true
	case "status.hostIP", "status.podIP", "status.hostIPs", "status.podIPs":
		return ip, true
	default:
		for prefix, values := range map[string]map[string]string{"metadata.labels['": pod.Labels, "metadata.annotations['": pod.Annotations} {
			if key, found := strings.CutPrefix(path, prefix); found && strings.HasSuffix(key, "']") {
				return values[strings.TrimSuffix(key, "']")], true
			}
		}
	}
	return "", false
}

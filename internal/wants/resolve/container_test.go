package resolve_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
)

// containerPod returns a pod whose container has one mount, with the given fields.
func containerPod(mount string) string {
	return `
apiVersion: v1
kind: ConfigMap
metadata: {name: dirs}
data: {site: zurich}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {key: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u-1, labels: {app: shop}}
spec:
  initContainers: [{name: first, image: i}]
  containers:
  - name: app
    image: i
    securityContext: {privileged: true}
    env:
    - {name: HOME_DIR, value: home}
    - {name: NESTED, value: $(HOME_DIR)/$(UNKNOWN)}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    - {name: APP, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: SITE, valueFrom: {configMapKeyRef: {name: dirs, key: site}}}
    - {name: PASSWORD, valueFrom: {secretKeyRef: {name: hidden, key: key}}}
    - {name: DERIVED, value: x-$(PASSWORD)}
    - {name: UP, value: ../..}
    - {name: EMPTY, value: ""}
    envFrom: [{prefix: C_, configMapRef: {name: dirs}}, {prefix: S_, secretRef: {name: hidden}}]
    volumeMounts: [{name: v, mountPath: /v` + mount + `}]
  - {name: plain, image: i, volumeMounts: [{name: v, mountPath: v, mountPropagation: Bidirectional}]}
  volumes: [{name: v, emptyDir: {}}]
`
}

func container(t *testing.T, text, name string, can resolve.Runtime) ([]resolve.ContainerMount, error) {
	t.Helper()
	w := parse(t, text)
	for _, o := range w.objects {
		if pod, ok := o.(*corev1.Pod); ok {
			return resolve.Container(pod, name, w, w.config, can)
		}
	}
	t.Fatal("no pod")
	return nil, nil
}

// Items: N02, N03, N06, N07.
func TestContainerMount(t *testing.T) {
	base := resolve.ContainerMount{Volume: "v", Path: "/v", Propagation: "rprivate"}
	with := func(change func(*resolve.ContainerMount)) resolve.ContainerMount {
		m := base
		change(&m)
		return m
	}
	sub := func(p string) resolve.ContainerMount {
		return with(func(m *resolve.ContainerMount) { m.SubPath = p })
	}
	for fields, want := range map[string]any{
		"":                                    base,
		", readOnly: true":                    with(func(m *resolve.ContainerMount) { m.ReadOnly = true }),
		", subPath: a/b":                      sub("a/b"),
		", subPath: a//b/./":                  sub("a/b"),
		", subPath: .":                        base,
		", subPath: $(HOME_DIR)":              sub("$(HOME_DIR)"), // no variables in a subPath
		", subPath: ..a":                      sub("..a"),
		", subPath: ../a":                     `spec.containers[0].volumeMounts[0].subPath: found "../a"`,
		", subPath: a/..":                     "subPath",
		", subPath: /a":                       "subPath",
		`, subPath: "a\x00"`:                  "subPath",
		", subPathExpr: $(HOME_DIR)/$(POD)":   sub("home/web"),
		", subPathExpr: $(NODE)-$(APP)":       sub("node-1-shop"),
		", subPathExpr: $(SITE)/$(C_site)":    sub("zurich/zurich"),
		", subPathExpr: $(NESTED)":            sub("home/$(UNKNOWN)"),
		", subPathExpr: $$(POD)$POD$":         sub("$(POD)$POD$"),
		", subPathExpr: $(MISSING)":           `subPathExpr: expand "$(MISSING)": no such variable: "MISSING"`,
		", subPathExpr: $(IP)":                "status.podIP is not known",
		", subPathExpr: $(PASSWORD)":          "from a Secret",
		", subPathExpr: $(DERIVED)":           "from a Secret",
		", subPathExpr: $(S_key)":             "from a Secret",
		", subPathExpr: $(UP)":                "subPathExpr",
		", subPathExpr: $(EMPTY)":             "subPathExpr",
		", subPathExpr: a, subPath: b":        "only one of",
		", mountPropagation: None":            base,
		", mountPropagation: HostToContainer": with(func(m *resolve.ContainerMount) { m.Propagation = "rslave" }),
		", mountPropagation: Bidirectional":   with(func(m *resolve.ContainerMount) { m.Propagation = "rshared" }),
		", mountPropagation: Sideways":        "mountPropagation: found Sideways",
	} {
		got, err := container(t, containerPod(fields), "app", resolve.Runtime{})
		if text, bad := want.(string); bad {
			if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: got %+v, %v, want an error with %q", fields, got, err, text)
			}
			continue
		}
		if diff := cmp.Diff([]resolve.ContainerMount{want.(resolve.ContainerMount)}, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", fields, err, diff)
		}
	}
}

// Items: N07.
func TestContainerMountRecursiveReadOnly(t *testing.T) {
	for _, mode := range []string{"Disabled", "IfPossible", "Enabled", "Perhaps"} {
		for _, readOnly := range []bool{false, true} {
			for _, propagation := range []string{"", "None", "HostToContainer", "Bidirectional"} {
				for _, can := range []bool{false, true} {
					fields := ", recursiveReadOnly: " + mode
					if readOnly {
						fields += ", readOnly: true"
					}
					if propagation != "" {
						fields += ", mountPropagation: " + propagation
					}
					legal := readOnly && (propagation == "" || propagation == "None") && mode != "Perhaps" && (can || mode == "IfPossible")
					got, err := container(t, containerPod(fields), "app", resolve.Runtime{RecursiveReadOnly: can})
					switch {
					case (err == nil) != (legal || mode == "Disabled"):
						t.Errorf("%s, can %v: got error %v", fields, can, err)
					case err == nil && got[0].RecursiveReadOnly != (legal && can && mode != "Disabled"):
						t.Errorf("%s, can %v: got %+v", fields, can, got[0])
					case err == nil && (got[0].Note != "") != (legal && !can):
						t.Errorf("%s, can %v: note %q", fields, can, got[0].Note)
					}
				}
			}
		}
	}
}

// Items: N06.
func TestBidirectionalIsForPrivilegedContainers(t *testing.T) {
	if _, err := container(t, containerPod(""), "plain", resolve.Runtime{}); err == nil || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("got %v, want that it is refused", err)
	}
}

func TestAContainerThatThePodHasNot(t *testing.T) {
	if got, err := container(t, containerPod(""), "first", resolve.Runtime{}); err != nil || len(got) != 0 {
		t.Errorf("an init container without volumes: got %v, %v", got, err)
	}
	if _, err := container(t, containerPod(""), "other", resolve.Runtime{}); !errors.Is(err, resolve.ErrNoContainer) || !strings.Contains(err.Error(), "first, app, plain") {
		t.Errorf("got %v, want ErrNoContainer with those there are", err)
	}
}

// Items: L17, N08.
func TestKindsThatAreNotTheContainersToChange(t *testing.T) {
	got, err := container(t, `
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u-1}
spec:
  containers:
  - name: app
    image: i
    volumeMounts:
    - {name: e, mountPath: /e}
    - {name: c, mountPath: /c}
    - {name: s, mountPath: /s}
    - {name: d, mountPath: /d}
    - {name: p, mountPath: /p}
    - {name: i, mountPath: /i}
    volumeDevices: [{name: b, devicePath: /dev/xvda}]
  volumes:
  - {name: e, emptyDir: {}}
  - {name: c, configMap: {name: x}}
  - {name: s, secret: {secretName: x}}
  - {name: d, downwardAPI: {items: []}}
  - {name: p, projected: {sources: []}}
  - {name: i, image: {reference: x}}
  - {name: b, persistentVolumeClaim: {claimName: x}}
`, "app", resolve.Runtime{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range got {
		if m.Fixed != (m.Volume != "e" && m.Volume != "b") || m.Device != (m.Volume == "b") {
			t.Errorf("%+v", m)
		}
	}
}

// Bind mount options are those that Kubernetes accepts (KEP-5855). If the runtime does not support them, the
// container is refused.
//
// Items: Q03.
func TestContainerMountOptions(t *testing.T) {
	can := resolve.Runtime{MountOptions: true}
	for fields, want := range map[string]any{
		"":                             []string(nil),
		", bindMountOptions: []":       []string(nil),
		", bindMountOptions: [noexec]": []string{"noexec"},
		", bindMountOptions: [nosuid, noexec, nodev], subPath: a": []string{"nodev", "noexec", "nosuid"},
		", bindMountOptions: [ro]":                                "spec.containers[0].volumeMounts[0].bindMountOptions[0]: found ro, want one of nodev, noexec, nosuid",
		", bindMountOptions: [noexec, nodev, noexec]":             "bindMountOptions[2]: found noexec, want each option once",
		", bindMountOptions: [NOEXEC]":                            "bindMountOptions[0]: found NOEXEC",
	} {
		got, err := container(t, containerPod(fields), "app", can)
		if text, bad := want.(string); bad {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %+v, %v, want an error with %q", fields, got, err, text)
			}
			continue
		}
		if err != nil || len(got) != 1 || cmp.Diff(want, got[0].Options) != "" {
			t.Errorf("%s: got %+v, %v, want %q", fields, got, err, want)
		}
	}
	_, err := container(t, containerPod(", bindMountOptions: [noexec]"), "app", resolve.Runtime{})
	if err == nil || !strings.Contains(err.Error(), "pod default/web: spec.containers[0].volumeMounts[0].bindMountOptions[0]: "+
		"found noexec, want a runtime") {
		t.Errorf("a runtime that does not know the options: %v", err)
	}
	image := strings.Replace(containerPod(", bindMountOptions: [noexec]"), "emptyDir: {}", "image: {reference: r}", 1)
	if _, err := container(t, image, "app", can); err == nil || !strings.Contains(err.Error(), "an image volume has none") {
		t.Errorf("an image volume: %v", err)
	}
}

// Items: Q09.
func TestContainersOfUserNamespaces(t *testing.T) {
	pod := strings.Replace(containerPod(""), "spec:\n", "spec:\n  hostUsers: false\n", 1)
	for can, want := range map[resolve.Runtime]string{
		{UserNamespaces: true}: "",
		{}:                     "pod default/web: spec.hostUsers: found false, want true or none, or a runtime",
	} {
		got, err := container(t, pod, "app", can)
		switch {
		case want == "" && (err != nil || len(got) != 1 || !got[0].MapIDs):
			t.Errorf("%+v: got %+v, %v, want ids mapped", can, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%+v: got %+v, %v, want %q", can, got, err, want)
		}
	}
	device := strings.Replace(pod, "volumeMounts:", "volumeDevices: [{name: v, devicePath: /dev/raw}]\n    volumeMounts:", 1)
	_, err := container(t, device, "app", resolve.Runtime{UserNamespaces: true})
	const want = "pod default/web: spec.containers[0].volumeDevices[0].name: found v, want none with spec.hostUsers: false"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a device: %v, want %q", err, want)
	}
	shared := strings.Replace(pod, "hostUsers: false", "hostUsers: true", 1)
	if got, err := container(t, shared, "app", resolve.Runtime{}); err != nil || got[0].MapIDs {
		t.Errorf("the host's users: got %+v, %v", got, err)
	}
}

func TestVariablesOfResourcesAndOtherVersions(t *testing.T) {
	for from, want := range map[string]string{
		"{resourceFieldRef: {resource: limits.memory}}":                       "8388608",
		"{resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}":         "8",
		"{resourceFieldRef: {resource: requests.memory, divisor: 1Mi}}":       "4",
		"{resourceFieldRef: {containerName: plain, resource: limits.memory}}": "1024",
		"{fieldRef: {apiVersion: v1, fieldPath: metadata.name}}":              "web",
		"{fieldRef: {apiVersion: v2, fieldPath: metadata.name}}":              "",
	} {
		pod := containerPod(", subPathExpr: $(X)")
		pod = strings.Replace(pod, "    env:\n", "    resources: {limits: {memory: 8Mi}, requests: {memory: 4Mi}}\n    env:\n    - {name: X, valueFrom: "+from+"}\n", 1)
		pod = strings.Replace(pod, "{name: plain, image: i,", "{name: plain, image: i, resources: {limits: {memory: 1Ki}},", 1)
		got, err := container(t, pod, "app", resolve.Runtime{})
		switch {
		case want == "" && (err == nil || !strings.Contains(err.Error(), "apiVersion")):
			t.Errorf("%s: got %+v, %v", from, got, err)
		case want != "" && (err != nil || got[0].SubPath != want):
			t.Errorf("%s: got %+v, %v, want %q", from, got, err, want)
		}
	}
}

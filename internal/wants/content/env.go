package content

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ErrVariable means that a path uses a variable that does not exist or is not allowed.
var ErrVariable = errors.New("no such variable")

// Variable is a variable of a container's environment.
type Variable struct {
	Value string
	// Secret means that the value comes from a Secret, so no path may contain it.
	Secret bool
	// Err is why the value is unknown.
	Err error
}

// Variables returns the environment in the container's spec, without the variables that the image
// and service names would add.
func (r Reader) Variables(c *corev1.Container, nodeName string) map[string]Variable {
	vars := map[string]Variable{}
	for _, from := range c.EnvFrom {
		maps.Copy(vars, r.fromObject(from))
	}
	for _, e := range c.Env {
		if e.ValueFrom != nil {
			vars[e.Name] = r.fromRef(c.Name, e.ValueFrom, nodeName)
			continue
		}
		vars[e.Name] = expandLiteral(e.Value, vars)
	}
	return vars
}

// expandLiteral returns a literal value after expanding references to earlier variables. References to
// unknown variables stay as they are.
func expandLiteral(text string, vars map[string]Variable) Variable {
	v := Variable{}
	v.Value, v.Err = expand(text, func(name string) (string, bool, error) {
		named, ok := vars[name]
		v.Secret = v.Secret || ok && named.Secret
		return named.Value, ok, named.Err
	})
	return v
}

func (r Reader) fromObject(from corev1.EnvFromSource) map[string]Variable {
	vars := map[string]Variable{}
	if ref := from.ConfigMapRef; ref != nil {
		if object, err := r.Objects.ConfigMap(r.Namespace, ref.Name); err == nil && object != nil {
			for key, value := range object.Data {
				vars[from.Prefix+key] = Variable{Value: value}
			}
		}
	}
	if ref := from.SecretRef; ref != nil {
		if object, err := r.Objects.Secret(r.Namespace, ref.Name); err == nil && object != nil {
			for key := range object.Data {
				vars[from.Prefix+key] = Variable{Secret: true}
			}
		}
	}
	return vars
}

func (r Reader) fromRef(container string, from *corev1.EnvVarSource, nodeName string) Variable {
	value := func(s string, err error) Variable { return Variable{Value: s, Err: err} }
	switch {
	case from.SecretKeyRef != nil:
		return Variable{Secret: true}
	case from.ConfigMapKeyRef != nil:
		return value(r.configMapKey(from.ConfigMapKeyRef))
	case from.FieldRef != nil && from.FieldRef.FieldPath == "spec.nodeName":
		return value(nodeName, nil)
	}
	pod, err := r.Objects.Pod()
	if err == nil && pod == nil {
		err = fmt.Errorf("the pod: %w", ErrNotFound)
	}
	switch {
	case err != nil:
		return value("", err)
	case from.ResourceFieldRef != nil:
		ref := *from.ResourceFieldRef
		ref.ContainerName = cmp.Or(ref.ContainerName, container) // the container's own by default
		return value(r.resource(pod, &ref))
	case from.FieldRef == nil:
		return value("", errors.New("its valueFrom has no source that a path may use"))
	}
	return value(podField(pod, from.FieldRef))
}

func (r Reader) configMapKey(ref *corev1.ConfigMapKeySelector) (string, error) {
	object, err := r.Objects.ConfigMap(r.Namespace, ref.Name)
	if err != nil {
		return "", err
	}
	if object == nil {
		return "", fmt.Errorf("configMap %s/%s: %w", r.Namespace, ref.Name, ErrNotFound)
	}
	value, ok := object.Data[ref.Key]
	if !ok {
		return "", fmt.Errorf("configMap %s/%s: key %.253q: %w", r.Namespace, ref.Name, ref.Key, ErrNoKey)
	}
	return value, nil
}

// podField returns a field of the pod, including those that only environments may contain.
func podField(pod *corev1.Pod, ref *corev1.ObjectFieldSelector) (string, error) {
	value, found := "", true
	switch ref.FieldPath {
	case "spec.serviceAccountName":
		value = pod.Spec.ServiceAccountName
	case "status.podIP":
		value = pod.Status.PodIP
	case "status.hostIP":
		value = pod.Status.HostIP
	default:
		found = false
	}
	switch {
	case !found:
		return field(pod, ref)
	case value == "":
		return "", fmt.Errorf("fieldRef: %s is not known", ref.FieldPath)
	}
	return value, nil
}

// Expand returns text with each $(NAME) replaced by the variable's value, and each $$ by a single
// $. An unknown variable is an error. So is a variable from a Secret, since every process on the
// node can see paths.
func Expand(text string, vars map[string]Variable) (string, error) {
	out, err := expand(text, func(name string) (string, bool, error) {
		v, ok := vars[name]
		switch {
		case !ok:
			return "", false, fmt.Errorf("%w: %.253q; want one of [%s] of the container's env", ErrVariable, name,
				strings.Join(slices.Sorted(maps.Keys(vars)), ", "))
		case v.Secret:
			return "", false, fmt.Errorf("%w for a path: %.253q is from a Secret, and every process can see paths", ErrVariable,
				name)
		}
		return v.Value, true, v.Err
	})
	if err != nil {
		return "", fmt.Errorf("expand %.253q: %w", text, err)
	}
	return out, nil
}

// expand replaces each $(NAME) by the result of value. If value returns false, the reference stays.
func expand(text string, value func(name string) (string, bool, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
			continue
		case !strings.HasPrefix(rest, "("), !closed:
			out.WriteByte('$')
			text = rest
			continue
		}
		v, known, err := value(name)
		if err != nil {
			return "", err
		}
		if !known {
			v = "$(" + name + ")"
		}
		out.WriteString(v)
		text = after
	}
}

package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// secretParameters are the parameters by which a class names the secrets of its calls, without the prefix and the
// suffix "-name" or "-namespace".
var secretParameters = []string{
	"provisioner-secret", "controller-publish-secret", "node-stage-secret", "node-publish-secret",
	"controller-expand-secret", "node-expand-secret", "controller-modify-secret",
}

// anySecret is the parameter for the calls whose own parameter a class leaves out.
const anySecret = "secret"

// oldSecretParameters are earlier names of secretParameters, without the suffix "Name" or "Namespace". The driver
// gets them too (external-provisioner).
var oldSecretParameters = map[string]string{
	"provisioner-secret": "csiProvisionerSecret", "controller-publish-secret": "csiControllerPublishSecret",
	"node-stage-secret": "csiNodeStageSecret", "node-publish-secret": "csiNodePublishSecret",
}

func isSecretParameter(name string) bool {
	name, ok := strings.CutSuffix(name, "-name")
	if !ok {
		name, ok = strings.CutSuffix(name, "-namespace")
	}
	return ok && (name == anySecret || slices.Contains(secretParameters, name))
}

// classSecrets returns the secrets that the class of c names.
func classSecrets(c Claim) (s secrets, problem string) {
	named := map[string]state.SecretRef{}
	for _, param := range secretParameters {
		t, problem := secretTemplate(c.Class, param)
		if problem == "" && t == (state.SecretRef{}) {
			t, problem = secretTemplate(c.Class, anySecret)
		}
		switch {
		case problem != "":
			return secrets{}, problem
		case t == (state.SecretRef{}):
			continue
		}
		name, err := expandTemplate(t.Name, c, c.Annotations)
		if err != nil {
			return secrets{}, fmt.Sprintf("parameter %s of its class %s: %v", reserved+param, c.Class.Name, err)
		}
		namespace, err := expandTemplate(t.Namespace, c, nil) // else the claim's author would choose it
		if err != nil {
			return secrets{}, fmt.Sprintf("parameter %s of its class %s: %v", reserved+param, c.Class.Name, err)
		}
		named[param] = state.SecretRef{Name: name, Namespace: namespace}
	}
	return secrets{
		Provision: named["provisioner-secret"], Attach: named["controller-publish-secret"], Stage: named["node-stage-secret"],
		Publish: named["node-publish-secret"], Expand: named["controller-expand-secret"],
		NodeExpand: named["node-expand-secret"], Modify: named["controller-modify-secret"],
	}, ""
}

// secretTemplate returns the name and namespace that the class gives by param, each by its present or its earlier name.
func secretTemplate(c Class, param string) (t state.SecretRef, problem string) {
	var values, by [2]string
	for i, part := range []struct{ now, before string }{{"-name", "Name"}, {"-namespace", "Namespace"}} {
		keys := []string{reserved + param + part.now}
		if old := oldSecretParameters[param]; old != "" {
			keys = append(keys, old+part.before)
		}
		for _, key := range keys {
			value, ok := c.Parameters[key]
			switch {
			case !ok:
			case by[i] != "":
				return t, fmt.Sprintf("its class %s has the parameters %s and %s; want one of them", c.Name, by[i], key)
			default:
				values[i], by[i] = value, key
			}
		}
	}
	if (by[0] == "") != (by[1] == "") {
		return t, fmt.Sprintf("its class %s has the parameter %s without the other; want %s%s-name and -namespace", c.Name,
			by[0]+by[1], reserved, param)
	}
	return state.SecretRef{Name: values[0], Namespace: values[1]}, ""
}

// AnnotationTemplate is what stands for a claim's annotation in the name of a class's secret.
func AnnotationTemplate(key string) string { return "${pvc.annotations['" + key + "']}" }

// expandTemplate expands the variables in a secret's name or namespace.
func expandTemplate(template string, c Claim, annotations map[string]string) (string, error) {
	pairs := []string{"${pvc.name}", c.Name, "${pvc.namespace}", c.Namespace, "${pv.name}", c.volumeName()}
	for key, value := range annotations {
		pairs = append(pairs, AnnotationTemplate(key), value)
	}
	out := strings.NewReplacer(pairs...).Replace(template)
	switch {
	case strings.Contains(out, "${"):
		return "", fmt.Errorf("%q has a template other than ${pvc.name}, ${pvc.namespace}, ${pv.name} and, in a secret's "+
			"name, ${pvc.annotations['KEY']} of an annotation that the claim has", template)
	case out == "":
		return "", fmt.Errorf("it is empty")
	}
	return out, nil
}

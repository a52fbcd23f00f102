package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/csi-volmgr/csi-volmgr/internal/provision/controller"
	"github.com/csi-volmgr/csi-volmgr/internal/provision/made"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/kind"
	volumes "github.com/csi-volmgr/csi-volmgr/internal/wants/named"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/manager/plan"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
	"github.com/csi-volmgr/csi-volmgr/pkg/translate"
)

// nodeLabels reads values of --node-label, KEY=VALUE, with the API server's rules for labels.
func nodeLabels(values []string) (map[string]string, error) {
	all := map[string]string{}
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		wrong := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		_, twice := all[key]
		switch {
		case !ok || len(wrong) > 0:
			return nil, flagf("node-label", v, "expected KEY=VALUE, such as topology.kubernetes.io/zone=a%s",
				strings.Join(append([]string{""}, wrong...), "; "))
		case twice:
			return nil, flagf("node-label", v, "expected each key once; it has %s too", all[key])
		case key == corev1.LabelHostname:
			return nil, flagf("node-label", v, "expected --node-name=%s for it", value)
		}
		all[key] = value
	}
	return all, nil
}

// deadlines reads values of --deadline, DRIVER/RPC=DURATION. A rule for every driver ("*") holds for
// drivers without a rule of their own.
func deadlines(values []string) (map[state.DriverName]csiclient.Deadlines, error) {
	all := map[state.DriverName]csiclient.Deadlines{}
	set := func(value string, to []state.DriverName) error {
		what, text, _ := strings.Cut(value, "=")
		_, rpc, _ := strings.Cut(what, "/")
		t, err := time.ParseDuration(text)
		if err != nil {
			return flagf("deadline", value, "expected DRIVER/RPC=DURATION, such as */NodeStageVolume=5m")
		}
		for _, driver := range to {
			d := all[driver]
			if err := d.Set(rpc, t); err != nil {
				return flagf("deadline", value, "%v", err)
			}
			all[driver] = d
		}
		return nil
	}
	drivers := []state.DriverName{resolve.Any}
	for _, v := range values {
		if name, _, ok := strings.Cut(v, "/"); ok && name != resolve.Any {
			drivers = append(drivers, state.DriverName(name))
		}
	}
	for _, every := range []bool{true, false} {
		for _, v := range values {
			name, _, ok := strings.Cut(v, "/")
			if !ok || name == "" {
				return nil, flagf("deadline", v, "expected DRIVER/RPC=DURATION, such as */NodeStageVolume=5m")
			}
			to := []state.DriverName{state.DriverName(name)}
			if name == resolve.Any {
				to = drivers
			}
			if every == (name == resolve.Any) {
				if err := set(v, to); err != nil {
					return nil, err
				}
			}
		}
	}
	return all, nil
}

// driverUIDs reads values of --driver-uid, DRIVER=UID.
func driverUIDs(values []string) (map[state.DriverName][]uint32, error) {
	all := map[state.DriverName][]uint32{}
	for _, v := range values {
		name, text, _ := strings.Cut(v, "=")
		uid, err := strconv.ParseUint(text, 10, 32)
		if err != nil || name == "" || name == resolve.Any {
			return nil, flagf("driver-uid", v, "expected DRIVER=UID, the name of one driver and the number of a user")
		}
		all[state.DriverName(name)] = append(all[state.DriverName(name)], uint32(uid))
	}
	return all, nil
}

// controllers reads values of --driver-controller, DRIVER=ENDPOINT.
func controllers(values []string) (map[state.DriverName]controller.Endpoint, error) {
	all := map[state.DriverName]controller.Endpoint{}
	for _, v := range values {
		name, text, _ := strings.Cut(v, "=")
		driver := state.DriverName(name)
		_, twice := all[driver]
		at, err := controllerAt(text)
		if name == "" || name == resolve.Any || twice || err != nil {
			return nil, flagf("driver-controller", v, "expected DRIVER=PATH, or "+
				"DRIVER=tcp://HOST:PORT,ca=FILE,cert=FILE,key=FILE with absolute paths, once for a driver")
		}
		all[driver] = at
	}
	return all, nil
}

var errField = errors.New("not ca, cert or key")

// controllerAt reads ENDPOINT of --driver-controller.
func controllerAt(text string) (controller.Endpoint, error) {
	address, rest, more := strings.Cut(text, ",")
	at := controller.Endpoint{Address: address}
	files := map[string]*string{"ca": &at.CA, "cert": &at.Cert, "key": &at.Key}
	for more {
		var field string
		field, rest, more = strings.Cut(rest, ",")
		key, file, _ := strings.Cut(field, "=")
		if files[key] == nil {
			return at, errField
		}
		*files[key] = file
	}
	return at.Parsed()
}

// fsTypes reads values of --default-fstype, DRIVER=FSTYPE.
func fsTypes(values []string) (map[state.DriverName]string, error) {
	all := map[state.DriverName]string{}
	for _, v := range values {
		name, fsType, _ := strings.Cut(v, "=")
		driver := state.DriverName(name)
		if fsType == "" || name == "" || name == resolve.Any || all[driver] != "" {
			return nil, flagf("default-fstype", v, "expected DRIVER=FSTYPE, once for a driver, such as d.example.com=ext4")
		}
		all[driver] = fsType
	}
	return all, nil
}

// unmountSteps reads values of --unmount-steps, DRIVER=STEP@AFTER[,STEP@AFTER]. Steps must go from the
// mildest to the hardest, with increasing times.
func unmountSteps(values []string) (plan.Ladders, error) {
	all := plan.Ladders{}
	for _, v := range values {
		name, steps, _ := strings.Cut(v, "=")
		driver := state.DriverName(name)
		if _, twice := all[driver]; twice {
			return nil, flagf("unmount-steps", v, "%s is there already", name)
		}
		for text := range strings.SplitSeq(steps, ",") {
			step, after, _ := strings.Cut(text, "@")
			r := plan.Rung{Step: state.UnmountStep(step)}
			var err error
			if r.After, err = time.ParseDuration(after); err != nil || r.After < 0 || name == "" ||
				r.Step != state.UnmountForce && r.Step != state.UnmountLazy {
				return nil, flagf("unmount-steps", v, "expected DRIVER=STEP@AFTER with the steps force and lazy, such as "+
					"kubernetes.io/nfs=force@5m,lazy@1h")
			}
			if r.Step == state.UnmountForce && cannotForce(driver) {
				return nil, flagf("unmount-steps", v, "an unmount of kind %s cannot be forced: only network file systems "+
					"and FUSE can be", name)
			}
			if ladder := all[driver]; len(ladder) > 0 {
				if last := ladder[len(ladder)-1]; !r.Step.Harder(last.Step) || r.After < last.After {
					return nil, flagf("unmount-steps", v, "expected steps from force to lazy, and later ones later")
				}
			}
			all[driver] = append(all[driver], r)
		}
	}
	return all, nil
}

// cannotForce reports whether a built-in kind's file systems cannot be unmounted by force: the unmount
// would be a normal one.
func cannotForce(driver state.DriverName) bool {
	k, _ := kind.Of(driver)
	return strings.HasPrefix(string(driver), kind.Prefix) && !k.Forced
}

// inlineRules reads values of --inline-allow, NAMESPACE/DRIVER; nil allows all.
func inlineRules(values []string) ([]resolve.InlineRule, error) {
	if len(values) == 1 && values[0] == "none" {
		return []resolve.InlineRule{}, nil
	}
	var rules []resolve.InlineRule
	for _, v := range values {
		namespace, driver, ok := strings.Cut(v, "/")
		if !ok || namespace == "" || driver == "" {
			return nil, flagf("inline-allow", v, "expected NAMESPACE/DRIVER, where * is any, or none alone")
		}
		rules = append(rules, resolve.InlineRule{Namespace: namespace, Driver: state.DriverName(driver)})
	}
	return rules, nil
}

// namespaces checks the values of a flag that are names of namespaces, or * for any.
func namespaces(flag string, values []string) ([]string, error) {
	for _, v := range values {
		if len(validation.IsDNS1123Label(v)) > 0 && v != made.AnyNamespace {
			return nil, flagf(flag, v, "expected the name of a namespace, or * for any")
		}
	}
	return values, nil
}

// nomadRules reads values of --nomad-allow.
func nomadRules(values []string) (rules []volumes.NomadRule, err error) {
	for _, v := range values {
		rule, ok := volumes.ParseNomadRule(v)
		if !ok {
			return nil, flagf("nomad-allow", v, "expected NOMAD-NAMESPACE/namespace=NAMESPACE, "+
				"NOMAD-NAMESPACE/driver=DRIVER or NOMAD-NAMESPACE/owner, where * is any")
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// translated returns the kinds of in-tree volumes that values name; nil means all.
func translated(values []string) ([]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	kinds := []string{}
	for _, v := range values {
		switch {
		case v == "none" && len(values) == 1:
		case translate.Has(v):
			kinds = append(kinds, v)
		default:
			return nil, flagf("translate", v, "expected one of %s, or none alone", strings.Join(translate.Kinds(), ", "))
		}
	}
	return kinds, nil
}

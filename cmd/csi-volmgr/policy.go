package main

import (
	"strings"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/resolve"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// deadlines reads values of --deadline, DRIVER/RPC=DURATION. What is said of
// every driver ("*") holds for those of which nothing else is said.
func deadlines(values []string) (map[state.DriverName]csiclient.Deadlines, error) {
	all := map[state.DriverName]csiclient.Deadlines{}
	set := func(value string, to []state.DriverName) error {
		what, text, _ := strings.Cut(value, "=")
		_, rpc, _ := strings.Cut(what, "/")
		t, err := time.ParseDuration(text)
		if err != nil {
			return usagef("--deadline=%s: expected DRIVER/RPC=DURATION, such as */NodeStageVolume=5m", value)
		}
		for _, driver := range to {
			d := all[driver]
			if err := d.Set(rpc, t); err != nil {
				return usagef("--deadline=%s: %v", value, err)
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
				return nil, usagef("--deadline=%s: expected DRIVER/RPC=DURATION, such as */NodeStageVolume=5m", v)
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

// inlineRules reads values of --inline-allow, NAMESPACE/DRIVER; nil lets everybody.
func inlineRules(values []string) ([]resolve.InlineRule, error) {
	var rules []resolve.InlineRule
	for _, v := range values {
		namespace, driver, ok := strings.Cut(v, "/")
		if !ok || namespace == "" || driver == "" {
			return nil, usagef("--inline-allow=%s: expected NAMESPACE/DRIVER, where * is any", v)
		}
		rules = append(rules, resolve.InlineRule{Namespace: namespace, Driver: state.DriverName(driver)})
	}
	return rules, nil
}

package resolve

import (
	"fmt"
	"slices"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// Any stands for every namespace, or every driver, in an InlineRule.
const Any = "*"

// InlineRule allows the pods of a namespace to have inline volumes of a driver. The
// pod's author chooses such a volume's parameters, without a claim or class that an
// administrator controls.
type InlineRule struct {
	// Namespace and Driver are names, or Any.
	Namespace string
	Driver    state.DriverName
}

// checkInlineAllowed returns an error if the pod may not have an inline volume of driver.
func (r *resolver) checkInlineAllowed(driver state.DriverName, field string) error {
	rules := r.config.InlineAllow
	if rules == nil || slices.ContainsFunc(rules, func(rule InlineRule) bool {
		return (rule.Namespace == Any || rule.Namespace == r.pod.Namespace) && (rule.Driver == Any || rule.Driver == driver)
	}) {
		return nil
	}
	return fmt.Errorf("%s: %s: found %s, which namespace %s may not use inline on this node; want a claim, or "+
		"--inline-allow=%s/%s",
		r.name(), field, driver, r.pod.Namespace, r.pod.Namespace, driver)
}

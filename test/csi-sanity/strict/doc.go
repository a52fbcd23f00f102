// Package strict runs the sanity suite of kubernetes-csi/csi-test against the strict CSI
// driver of test/csi-strict, with all its abilities and no misbehaviour.
package strict

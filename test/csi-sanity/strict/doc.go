// Package strict runs the sanity suite of kubernetes-csi/csi-test against the
// strict CSI driver of test/csi-strict, honest and with all that it can do.
package strict

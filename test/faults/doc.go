// Package faults runs the real program with the strict CSI driver of test/csi-strict, in a
// private mount namespace. The driver is either honest, to check that CSI 1.13 allows every
// call in a volume's life, or it misbehaves by a script, to check that each fault affects
// only its own volume and is explained.
//
// Every test ends with the driver's verdict: no rule was broken, and nothing is left.
package faults

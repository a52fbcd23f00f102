// Package faults runs the real program against the strict CSI driver of
// test/csi-strict, in a mount namespace of its own: honest, to show that every
// call of a volume's life is one that CSI 1.13 allows, and misbehaving by a
// script, to show that each fault stays with its volume and is explained.
//
// Every test ends with the driver's verdict: no breach, and nothing left.
package faults

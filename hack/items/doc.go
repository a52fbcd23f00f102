// Package items knows what csi-volmgr has to show, and which test shows it.
//
// It has three lists: the items of parity (what a host of CSI drivers does, and
// what CSI asks of one), the faults that a node must survive, and the attacks
// that it must withstand. A test claims one in its comment or beside one of
// its cases:
//
//	// Items: A02, N-17.
//	// Faults: A010.
//	// Attacks: C1.
//
// A claim is for a reader to check: the test must fail when the behaviour is
// taken out. hack/parity and hack/faults (make parity, make faults) print what is
// claimed and what is not.
package items

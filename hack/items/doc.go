// Package items knows what csi-volmgr has to show, and which test shows it.
//
// It has four lists: the items of parity (what a host of CSI drivers does, and
// what CSI asks of one), the faults that a node must survive, the attacks that it
// must withstand, and the scenarios of Kubernetes' own storage tests. A test
// claims one in its comment or beside one of its cases:
//
//	// Items: A02, N-17.
//	// Faults: A010.
//	// Attacks: C1.
//	// Scenarios: U-12.
//
// A page of scenarios (testdata/*.txtar) has such lines in its comment, without the slashes.
//
// A claim is for a reader to check: the test must fail when the behaviour is
// taken out. hack/parity and hack/faults (make parity, make faults) print what is
// claimed and what is not.
package items

// Package items has the lists of what csi-volmgr has to show, and finds the tests that show it.
//
// It has five lists: the items of parity (the behaviour of a host of CSI drivers, and
// CSI's requirements for one), the faults that a node must survive, the attacks that it
// must withstand, the scenarios of Kubernetes' own storage tests, and the behaviour of
// Kubernetes' sidecars, with each case of their tests. A test
// claims one in its comment or next to one of its cases:
//
//	// Items: A02, N-17.
//	// Faults: A010.
//	// Attacks: C1.
//	// Scenarios: U-12.
//	// Sidecars: SP-02.
//
// A page of scenarios (testdata/*.txtar) has such lines in its comment, without the slashes.
//
// A reader has to check a claim: the test must fail when the behaviour is
// removed. hack/parity and hack/faults (make parity, make faults) print which items are
// claimed and which are not.
package items

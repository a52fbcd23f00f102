// Package csisanity runs the sanity suite of kubernetes-csi/csi-test against
// csi-volmgr's own driver, or against any driver that CSI_ENDPOINT names.
//
//	make sanity
//	make sanity CSI_ENDPOINT=unix:///run/my.sock
//
// It is a module of its own: ginkgo and gomega come with csi-test, and stay out of
// the module that embedders import.
//
// With CSI_ENDPOINT, these variables apply too: CSI_ACCESS_TYPE (mount or block),
// CSI_VOLUME_SIZE and CSI_EXPAND_SIZE (quantities), CSI_PARAMETERS (key=value, separated by
// commas). The suite then runs in the caller's mount namespace, since it has to see the
// driver's mounts; for our own driver it runs in a private one. Both need root.
package csisanity

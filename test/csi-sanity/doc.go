// Package csisanity runs the sanity suite of kubernetes-csi/csi-test against
// csi-volmgr's own driver, or against any driver that CSI_ENDPOINT names.
//
//	go test ./test/csi-sanity/...
//	CSI_ENDPOINT=unix:///run/my.sock go test ./test/csi-sanity/...
//
// With CSI_ENDPOINT, these are heeded too: CSI_ACCESS_TYPE (mount or block),
// CSI_VOLUME_SIZE and CSI_EXPAND_SIZE (quantities), CSI_PARAMETERS (key=value,
// separated by commas). The suite then runs in the caller's mount namespace,
// since the driver's mounts have to be seen; for our own driver it runs in a
// private one. Both need root.
package csisanity

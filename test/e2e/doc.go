// Package e2e has the end-to-end tests: the real program, a real CSI driver in a process of
// its own, and real mounts in a private mount namespace.
//
// The driver is the local driver, or another one:
//
//	E2E_DRIVER=strict                 the strict driver of test/csi-strict, as it is and
//	                                  with --enable-attach; each test ends with its verdict
//	DRIVER_BINARY=/path/to/driver     flags --drivername --endpoint --nodeid --statedir,
//	                                  run once as it is and once with --enable-attach;
//	                                  it is the driver itself, since it is killed, or a
//	                                  script that ends with exec
//	REGISTRAR_BINARY=/path/to/binary  node-driver-registrar; without it the tests
//	                                  register the driver by the same protocol
//	E2E_RACE=1                        build the program with the race detector
//
// A proxy between daemon and driver passes on the calls and notes them, so that the tests
// see whether a call was repeated.
package e2e

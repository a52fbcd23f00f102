// Package vm runs tests of this project in a virtual machine with the stock kernel of the Debian that builds it
// (Linux 6.1 on Debian 12), which has what the kernel of a CI machine may lack: NFS, SCSI, iSCSI,
// Fibre Channel, multipath, quotas, and SELinux in enforcing mode. For the units,
// systemd is its first process.
//
// build.sh makes the machine's root file system, an initramfs, from Debian
// packages; init is its first process. QEMU emulates the processor, so that the
// tests need no KVM. Everything is slow, so no test in the machine may have a short
// time limit. The machine has no network device; servers and clients both run in
// it.
//
// A payload is a list of tests with the package of each; the machine runs the
// package's test binary. Package guest has the tests that only run in the machine.
// The tests have the build tag vm: make test-vm and .ci/run run them, make test
// does not.
package vm

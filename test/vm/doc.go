// Package vm runs tests of this project in a virtual machine with a stock
// Debian kernel, which has what the kernel of a CI machine may lack: NFS, SCSI,
// iSCSI, Fibre Channel, multipath, quotas, and SELinux in force; and with systemd
// as its first process, for the units.
//
// build.sh makes the machine's root file system, an initramfs, of Debian
// packages; init is its first process. QEMU emulates the processor, so that no
// KVM is needed and everything takes its time: no test in there may be short of
// it. There is no network device; servers and clients are in the machine both.
//
// A payload is a list of tests, each of a package of this project, whose test
// binary the machine runs; package guest has those that are for it alone. The
// tests are behind the build tag vm: make test-vm and .ci/run run them, make test
// does not.
package vm

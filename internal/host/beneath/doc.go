// Package beneath opens paths in directories that other programs change meanwhile, under the rules of openat2(2):
// links, mounts and ".." lead nowhere that the rules exclude, at whatever moment a name is exchanged.
//
// A kernel before Linux 5.6 has no openat2, and some container engines hide it. There [Walk] opens one element after
// the other and applies the same rules to what it opened. All rooms open such paths here; the mount room's Kernel
// calls [Walk] itself where it plays an older kernel.
//
// The package keeps no state: a call that openat2 refuses costs a tenth of a microsecond.
package beneath

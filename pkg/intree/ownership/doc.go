// Package ownership gives a tree of files to a pod's fsGroup.
//
// Owns: the walk that sets group and mode bits, as pods know it from the
// kubelet, and the test of whether a tree has them already.
//
// Does not: decide whether a volume is to be changed at all (the fsGroup
// policy of its driver), or open the tree's root.
//
// Invariants: every change is made through a descriptor of the very file that
// was looked at; no symbolic link is followed, no mount is crossed (rule 8),
// whatever a writer in the tree does meanwhile. A directory is changed after
// all that is in it, so a root that is right means a walk that was finished.
package ownership

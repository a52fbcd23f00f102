// Package ownership gives a tree of files to a pod's fsGroup.
//
// Owns: the walk that sets group and mode bits in the same way as the kubelet, and the
// check whether a tree has them already.
//
// Does not: decide whether a volume's files change at all (its driver's fsGroup policy
// decides), or open the tree's root.
//
// Invariants: every change uses a descriptor of the same file that was inspected.
// Whatever a writer in the tree does meanwhile, the walk follows no symbolic link and
// crosses no mount (rule 8). A directory is changed after its content, so a root with
// the right group and mode means that a walk was completed.
package ownership

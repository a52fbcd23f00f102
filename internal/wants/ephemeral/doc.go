// Package ephemeral provides the claims of generic ephemeral volumes on a node without a cluster: it makes each claim
// from the pod's volumeClaimTemplate, as Kubernetes' ephemeral volume controller does, and deletes the claim with its
// data once the pod is gone, as the garbage collector does.
//
// Owns: the row of each claim that it made (the claim, and the pod for which), which is durable in the journal, and
// when such a claim is deleted (next.go).
//
// Does not: make or delete a volume, or decide which pod may use a claim (package resolve does).
//
// A claim belongs to one pod of one UID. A pod of the same name and another UID, or of another name whose claim has the
// same name, waits until that pod is gone and the claim is deleted. A claim that another source lists is never
// touched. A pod is gone only when every source of this node has listed its objects and none lists a pod of that name
// and UID; its claim is then deleted to the end, even if the pod comes back.
package ephemeral

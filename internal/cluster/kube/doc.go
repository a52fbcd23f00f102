// Package kube delivers to the catalog the pods that a Kubernetes API server has bound to this
// node, and the objects that those pods name.
//
// Owns: the watch of the node's pods, what is read for them and when it is read again, the pauses
// between attempts, and the findings about a server that does not answer.
//
// Does not: decide what a pod wants (package resolve does), or write anything.
//
// One watch covers the node's pods and one its Node object. Objects that pods name are read by
// name. Secrets, configMaps, CSIDrivers and, if the identity may, claims are read by a list and
// watch of the single object. Volumes and attachments are read by a get: when the pod arrives, when
// its claim changes, and when the node's volumesAttached changes. An attachment is forgotten when its
// volume enters or leaves that list, and delivered as attached only if its read began after the list
// with the volume was seen. Each request lists only a node's
// pods, one named object, or the ClusterTrustBundles, which everyone may read. So a node's own
// identity (system:node:NAME) is sufficient. That identity may not watch claims; they are then read
// every Config.Refresh. If the identity may, claims and volumes are listed when pods wait for very
// many at once (gather).
//
// The last known pods, claims, volumes, CSIDrivers and Node labels are stored ([Config.KV]) and
// delivered at the start, until the server answers. They do not count as an answer, so nothing is
// removed because of them. Secrets, configMaps and attachments are not stored.
//
// Invariants: a pod or other object is deleted only when the server has said so in a complete
// answer: a list without it, or a deletion event (rule 5). A refusal, an error, a time-out or an
// absent server changes nothing that is known, and appears in Findings. The source has spoken after
// the first list of the node's pods. Lists are consistent reads: an answer from a lagging cache
// could bring back a deleted pod or remove a new one.
//
// Concurrency: Run and the goroutines that it starts own everything; the other methods may be
// called at any time.
package kube

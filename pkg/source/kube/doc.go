// Package kube tells the catalog which pods a Kubernetes API server has bound to
// this node, and the objects that they name.
//
// Owns: the watch of the node's pods, what is read for them and when it is read
// again, the pauses between attempts, and what people are told of a server that
// does not answer.
//
// Does not: decide what a pod wants (package resolve does), nor write anything.
//
// One watch has the node's pods, one its Node object. What a pod names is read
// by name: secrets, configMaps, CSIDrivers and, where the identity may, claims by
// a list and a watch of the single object; volumes and attachments by a get, when
// the pod comes, when its claim changes, and when the node's volumesAttached
// does. No request has to list more than a node's pods, one named object, or the
// ClusterTrustBundles, which everybody may read, so a node's own identity (system:node:NAME) is enough. That identity
// may not watch claims:
// they are got again every Config.Refresh then. Where the identity may, claims and
// volumes are listed when very many are waited for at one moment (gather).
//
// The last known pods, claims, volumes, CSIDrivers and labels of the Node are kept ([Config.KV]) and
// told at the start, until the server says more. They are no word of the source:
// nothing goes because of them. Secrets, configMaps and attachments are not kept.
//
// Invariants: a pod, or any object, goes only when the server has said so in a
// complete answer: a list without it, or a watch's deletion (rule 5). Refusal, an
// error, a time-out or a server that is not there change nothing of what is known,
// and are shown by Findings. The source has spoken when the node's pods were
// listed once. Lists are consistent reads; an answer out of a cache that lags
// behind could bring a pod back that is gone, or take one away that is new.
//
// Concurrency: Run and the goroutines that it starts own everything; the other
// methods may be called at any time.
package kube

// Package node is one node's volume manager, wired: what `csi-volmgr run`
// starts, and what a program that embeds csi-volmgr starts in its own process.
//
// Owns: which room is given which other, and the start and end of all of them.
//
// Does not: decide anything about a volume, serve the API, or parse flags.
//
// The parts that live as long as the node, with what each takes in and gives out:
//
//	sources (api, file, kube, made)  objects and manifests    -> objects of the catalog
//	named.Provider                   Docker's volumes, fstab  -> claims and pods
//	binding.Binder                   claims, listed volumes   -> which volume a claim has
//	source.Catalog                   objects                  -> what each pod wants
//	registration.Watcher             sockets of registrars    -> drivers that come and go
//	drivers.Drivers                  registered drivers       -> drivers that can be called
//	manager.Manager (the loop)       wants, drivers, mounts   -> calls, records, statuses
//	controller.Controller            claims, drivers          -> volumes, attachments
//	state.Bolt (the journal)         records                  -> records, after a restart
//	watch.Mounts                     the mount table          -> what the loop looks at again
//	stats.Collector                  volumes                  -> figures and health
//	cluster.Cluster                  the API server           -> the node's name, events, reports
//	isolate.Pool                     calls on storage         -> answers, also of what hangs
package node

// Package wire is one node's volume manager, wired: what `csi-volmgr run`
// starts, and what a program that embeds csi-volmgr starts in its own process.
//
// Owns: which component gets which others, and how all of them start and end.
//
// Does not: decide anything about a volume, serve the API, or parse flags.
//
// The components that live as long as the node, with their inputs and outputs:
//
//	sources (api, file, kube, made)  objects and manifests    -> objects of the catalog
//	named.Provider                   Docker's volumes, fstab  -> claims and pods
//	binding.Binder                   claims, listed volumes   -> which volume a claim has
//	source.Catalog                   objects                  -> what each pod wants
//	registration.Watcher             registrars' sockets      -> drivers that come and go
//	drivers.Drivers                  registered drivers       -> drivers that can be called
//	manager.Manager (the loop)       wants, drivers, mounts   -> calls, records, statuses
//	controller.Controller            claims, drivers          -> volumes, attachments
//	journal.Bolt (the journal)       records                  -> records, after a restart
//	watch.Mounts                     the mount table          -> suspects for the loop to check
//	stats.Collector                  volumes                  -> figures and health
//	cluster.Cluster                  the API server           -> the node's name, events, reports
//	isolate.Pool                     calls on storage         -> answers, even if a call hangs
package wire

// Package cluster tests the program against a real Kubernetes control plane:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, started on
// loopback out of the binary that kube/build.sh makes. The sidecars of CSI drivers
// (external-provisioner, external-attacher, external-resizer, external-snapshotter)
// are those that sidecars/build.sh makes. `make test-cluster` builds and runs all
// of it; the tests have the build tag "cluster".
//
// The API server writes an audit log, from which the tests count every request
// that the program made, by identity.
package cluster

// Package cluster tests the program against a real Kubernetes control plane: etcd,
// kube-apiserver, kube-controller-manager and kube-scheduler, which run on loopback from
// the binary that kube/build.sh makes. sidecars/build.sh makes the sidecars of CSI drivers
// (external-provisioner, external-attacher, external-resizer, external-snapshotter). `make
// test-cluster` builds and runs everything; the tests have the build tag "cluster".
//
// The API server writes an audit log. The tests count the program's requests in it, by
// identity.
package cluster

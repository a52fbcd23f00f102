// Package outage tests the nodes of a cluster whose API server is away, slow or
// overloaded, in virtual time (testing/synctest). A node is the real client code with its
// limits and pauses (source/kube), and the real catalog, manager and reporter. The API
// server is test/fakeapi, with as many requests in flight as a test allows. The drivers,
// the kernel and the attach-detach controller are models that note every forbidden
// effect.
//
// The tests count requests; docs/scale.md has their numbers.
package outage

// Package outage tests nodes of a cluster whose API server is away, slow, or has too
// much to do, in virtual time (testing/synctest). A node is the real client code with
// its limits and pauses (source/kube), the real catalog, manager and reporter; the API
// server is test/fakeapi, with so many requests in flight as a test allows; drivers,
// kernel and the attach-detach controller are models that note whatever must not
// happen.
//
// The tests count requests; docs/scale.md has their numbers.
package outage

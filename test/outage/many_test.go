package outage

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/test/fakeapi"
)

// show prints requests by verb and object.
func show(t *testing.T, when string, took time.Duration, count map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%s: %d %s", when, count[what], what)
	}
	t.Logf("%s: %d requests in all, within %s", when, sum(count, ""), took)
}

// The most requests that pods with a claim each may cost (docs/scale.md): per pod at a
// start without a journal, at a restart with everything mounted, and from a pod's start
// to its end; and in an idle hour per claim that may not be watched, and per watch.
const (
	coldRequests    = 6
	restartRequests = 5
	churnRequests   = 10
	hourOfClaim     = 40
	hourOfWatch     = 13
	// fixedRequests is the number of requests of the node and its driver.
	fixedRequests = 40
)

// manyPods returns the number of pods, and how many of them are replaced.
func manyPods() (pods, churned int) {
	if os.Getenv("SCALE") == "full" {
		return 2000, 200
	}
	return 150, 30
}

// A node has many pods with a claim each, and one configMap. The test counts requests at
// a start, in an idle hour, while pods are replaced, and at a restart.
//
// Faults: A223.
func TestRequestsOfManyPods(t *testing.T) {
	for name, c := range map[string]struct {
		authorizer func(fakeapi.Request) *fakeapi.Answer
		// gets and watches are the numbers per claim.
		gets, watches int
	}{"node identity": {nodeAuthorizer, 1, 0}, "ClusterRole": {nil, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { countMany(t, c.authorizer, c.gets, c.watches) })
		})
	}
}

func countMany(t *testing.T, authorizer func(fakeapi.Request) *fakeapi.Answer, gets, watches int) {
	pods, churned := manyPods()
	c := newCluster(t)
	c.many = true
	c.between = func(next http.RoundTripper, _ *node) http.RoundTripper { return slow{next, 20 * time.Millisecond} }
	c.server.Fail(authorizer)
	n := c.newNode("n1")
	c.config("shared")
	for i := range pods {
		c.bind("n1", fmt.Sprintf("p%d", i), "shared")
	}
	count := func(when string, took time.Duration, most int) {
		t.Helper()
		all := counted(c.server.Took())
		show(t, fmt.Sprintf("%d pods, %s", pods, when), took, all)
		if got := sum(all, ""); got > most {
			t.Errorf("%s: %d requests, want at most %d", when, got, most)
		}
	}
	allReady := func() bool {
		if away := n.away(); away != nil {
			t.Fatalf("the server is said to be away: %s", away.Text("server"))
		}
		return n.ready() == pods
	}
	n.start()
	took := until(t, "all pods are ready", 10*time.Minute, allReady)
	count("at a start", took, coldRequests*pods+fixedRequests)
	advance(10 * time.Minute) // until then the nodes' reads of claims are spread in time
	c.server.Took()
	advance(time.Hour)
	count("in an hour", time.Hour, gets*hourOfClaim*pods+watches*hourOfWatch*pods+hourOfWatch*fixedRequests)
	for i := range churned {
		c.unbind("n1", fmt.Sprintf("p%d", i))
		c.bind("n1", fmt.Sprintf("q%d", i), "shared")
	}
	took = until(t, "the new pods are ready", 5*time.Minute, func() bool {
		return n.count("Unstage") == churned && n.count("Publish") == pods+churned && allReady()
	})
	count(fmt.Sprintf("%d are replaced", churned), took, churnRequests*churned+gets*pods+fixedRequests)
	stages := n.count("Stage")
	n.stop()
	c.server.Took()
	n.start()
	took = until(t, "all pods are ready", 10*time.Minute, allReady)
	advance(time.Duration(pods/20) * time.Second) // so that the node reads all objects again
	count("at a restart with all mounted", took, restartRequests*pods+fixedRequests)
	if n.count("Stage") != stages || n.count("Unpublish") != churned {
		t.Errorf("the restart made %d stages, and %d mounts were taken away", n.count("Stage")-stages, n.count("Unpublish"))
	}
}

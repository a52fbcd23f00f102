//go:build cluster

package cluster

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"
)

// request is one request of the audit log.
type request struct {
	Stage      string
	Verb       string
	RequestURI string
	User       struct{ Username string }
	ObjectRef  struct{ Resource, Subresource, Namespace, Name string }
	Response   struct{ Code int } `json:"responseStatus"`
	Received   time.Time          `json:"requestReceivedTimestamp"`
}

// resource returns "pods" or "nodes/status", for example.
func (r request) resource() string {
	if r.ObjectRef.Subresource != "" {
		return r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource
	}
	return r.ObjectRef.Resource
}

// selector returns the field selector, or "".
func (r request) selector() string {
	u, err := url.Parse(r.RequestURI)
	if err != nil {
		return ""
	}
	return u.Query().Get("fieldSelector")
}

// requests returns the user's requests in order: a watch when it began, any other when it
// was answered.
func requests(t *testing.T, user string) (out []request) {
	t.Helper()
	return requestsIn(t, control.path("audit.log"), user)
}

// requestsIn returns them from the audit log of one API server.
func requestsIn(t *testing.T, log, user string) (out []request) {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // the API server is still writing this line
		}
		stage := "ResponseComplete"
		if r.Verb == "watch" && r.Response.Code == http.StatusOK {
			stage = "ResponseStarted"
		}
		if r.User.Username == user && r.Stage == stage {
			out = append(out, r)
		}
	}
	return out
}

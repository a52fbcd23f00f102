package outage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func answer(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: "R", Message: "m", Details: &metav1.StatusDetails{Name: "x"}}}
}

func sent(err error) error {
	return fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://api.test:6443/api/v1/pods", Err: err})
}

// A failed request has one of few causes, and none if the object itself is the reason.
//
// Faults: A175, A221.
func TestCauses(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Cause
		away bool
		says string
	}{
		{sent(syscall.ECONNREFUSED), Unreachable, true, "cannot be reached: connection refused"},
		{sent(context.DeadlineExceeded), Silent, true, "did not answer in time"},
		{sent(tls.AlertError(45)), BadCertificate, true, "expired"},
		{sent(&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}), BadCertificate, true, "expired"},
		{sent(x509.UnknownAuthorityError{}), BadCertificate, true, "unknown authority"},
		{answer(http.StatusUnauthorized), Unauthorized, true, "(401)"},
		{errors.Join(&RetryAfterError{http.StatusTooManyRequests, time.Second}), Busy, true, "(429) and asks for a pause of 1s"},
		{answer(http.StatusServiceUnavailable), Busy, true, "(503 R): m"},
		{answer(http.StatusForbidden), Refused, false, "(403): m"},
		{answer(http.StatusInternalServerError), Failing, false, "(500 R): m"},
		{fmt.Errorf("list: %w", &BehindError{Has: "7", Seen: "9"}), Behind, false, "an older state (resourceVersion 7) than before (9)"},
		{answer(http.StatusNotFound), "", false, "not found"},
		{answer(http.StatusConflict), "", false, "(409 R): m"},
		{errors.New("an answer that cannot be read"), "", false, "an answer that cannot be read"},
	} {
		if got := CauseOf(c.err); got != c.want || errors.Is(Wrap(c.err), ErrAway) != c.away || !errors.Is(Wrap(c.err), c.err) {
			t.Errorf("%v: %q, away %v, want %q", c.err, got, errors.Is(Wrap(c.err), ErrAway), c.want)
		}
		if got := Explain(c.err); !strings.Contains(got, c.says) || strings.Contains(got, "/api/v1/pods") {
			t.Errorf("%v: %q, want %q", c.err, got, c.says)
		}
	}
	if Wrap(nil) != nil {
		t.Error("an error of nothing")
	}
}

// Findings of one cause are one outage; a finding about one object stays by itself.
//
// Faults: A175.
func TestFindingsOfOneCauseAreOne(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 2, 3, minute, 0, 0, time.UTC) }
	pods := func(c Cause) Finding {
		return Finding{What: "pods of node n", Cause: c, Reason: string(c) + " pods", Since: at(5), Vital: true}
	}
	claim := func(c Cause) Finding {
		return Finding{What: "claim a", Cause: c, Reason: string(c) + " claim", Since: at(4)}
	}
	own := Finding{What: "drivers", Text: "labels contradict", Since: at(1)}
	known := Finding{What: "the API server", Text: "as known last", Since: at(2), Follows: true}
	for name, c := range map[string]struct {
		of    []Finding
		cause Cause
		waits []string
		rest  []string
	}{
		"none":                             {nil, "", nil, nil},
		"no outage":                        {[]Finding{own, known}, "", nil, []string{"drivers", "the API server"}},
		"all":                              {[]Finding{claim(Silent), pods(Unreachable), own, known}, Unreachable, []string{"claim a", "pods of node n", "the API server: as known last"}, []string{"drivers"}},
		"one refusal":                      {[]Finding{claim(Refused)}, "", nil, []string{"claim a"}},
		"one failure":                      {[]Finding{claim(Failing)}, "", nil, []string{"claim a"}},
		"older altogether":                 {[]Finding{claim(Behind), pods(Behind)}, Behind, []string{"claim a", "pods of node n"}, nil},
		"refused altogether":               {[]Finding{claim(Refused), pods(Refused)}, Refused, []string{"claim a", "pods of node n"}, nil},
		"failing altogether":               {[]Finding{claim(Failing), pods(Failing)}, Failing, []string{"claim a", "pods of node n"}, nil},
		"a refusal and an outage":          {[]Finding{claim(Refused), pods(Unauthorized)}, Unauthorized, []string{"pods of node n"}, []string{"claim a"}},
		"one request of many is postponed": {[]Finding{claim(Busy), own}, Busy, []string{"claim a"}, []string{"drivers"}},
	} {
		away, rest := Fold(c.of)
		var names []string
		for _, f := range rest {
			names = append(names, f.What)
		}
		if !slices.Equal(names, c.rest) || (away == nil) != (c.cause == "") {
			t.Errorf("%s: %+v, rest %q", name, away, names)
			continue
		}
		if away == nil {
			continue
		}
		if away.Cause != c.cause || !slices.Equal(away.Waits, c.waits) || len(c.waits) > 1 && !away.Since.Equal(at(4)) {
			t.Errorf("%s: %+v", name, away)
		}
	}
}

// The sentence says the cause, since when, what goes on, what waits, and which page helps.
//
// Faults: A175.
func TestTheSentence(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		of   Outage
		want string
	}{
		{
			Outage{Cause: Unreachable, Reason: "the API server cannot be reached: connection refused", Since: since, Vital: true},
			"the API server cannot be reached: connection refused, since 2026-01-02T03:04:05Z. What is mounted stays, its pods go on, " +
				"and nothing is unmounted; new pods, claims, attachments, secrets and tokens wait. " +
				"Look with: curl -k 'https://api.test:6443/readyz?verbose' (all that waits: csi-volmgr get problems -o json)",
		},
		{
			Outage{Cause: Busy, Reason: "x", Since: since, Waits: []string{"a", "b", "c", "d", "e"}},
			"x, since 2026-01-02T03:04:05Z. What is mounted stays, and its pods go on; what waits: a, b, c and 2 more. " +
				"Look with: curl -k 'https://api.test:6443/readyz?verbose' (all that waits: csi-volmgr get problems -o json)",
		},
	} {
		if got := c.of.Text("https://api.test:6443"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	for cause, want := range map[Cause]string{
		BadCertificate: "openssl s_client -connect api.test:6443 ", Unauthorized: "auth whoami", Refused: "auth can-i --list",
	} {
		if got := (&Outage{Cause: cause, Waits: []string{"a"}}).Text("https://api.test:6443"); !strings.Contains(got, want) || !strings.Contains(got, "what waits: a.") {
			t.Errorf("%s: %s", cause, got)
		}
	}
}

package csiclient

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// issues issues tokens that name their audience, or fails.
type issues struct {
	err    error
	issued time.Time
	asked  []TokenRequest
}

func (i *issues) Token(_ context.Context, r TokenRequest) (Token, error) {
	i.asked = append(i.asked, r)
	if i.err != nil {
		return Token{}, i.err
	}
	life := r.Lifetime
	if life == 0 {
		life = time.Hour
	}
	return Token{Value: "token-for-" + r.Audience, Issued: i.issued, Expires: i.issued.Add(life)}, nil
}

// tokensOf publishes a volume whose driver wants this renewal, and returns the request.
func tokensOf(t *testing.T, source TokenSource, mode state.Mode, want state.Renewal) (*csi.NodePublishVolumeRequest, time.Time, error) {
	t.Helper()
	n := connect(t, newFake(), func(c *Config) {
		c.Tokens = source
		c.Secrets = secretFunc(func(state.SecretRef) (map[string]string, error) { return map[string]string{"user": "x"}, nil })
	})
	v := n.volume(mode)
	v.Spec.PublishRef = ref("publish")
	must(t, n.d.Stage(t.Context(), v))
	m := v.Mounts["pod-1"]
	m.Renewal, m.Pod.ServiceAccount = want, "web"
	v.Mounts["pod-1"] = m
	until, err := n.d.Publish(t.Context(), v, "pod-1")
	r, _ := n.f.last.(*csi.NodePublishVolumeRequest)
	return r, until, err
}

// Tokens are sent as Kubernetes' JSON, by audience, in the volume context or in the secrets
// and never in both.
//
// Items: F06, F07, F08, F09.
func TestTokensGoWhereTheDriverWantsThem(t *testing.T) {
	issued := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	two := []state.TokenRequest{{Lifetime: 10 * time.Minute}, {Audience: "vault"}}
	const json2 = `{"":{"token":"token-for-","expirationTimestamp":"2026-05-01T12:10:00Z"},"vault":{"token":"token-for-vault","expirationTimestamp":"2026-05-01T13:00:00Z"}}`
	for name, tc := range map[string]struct {
		want             state.Renewal
		mode             state.Mode
		inContext, inSec string
	}{
		"none":                          {mode: state.Filesystem},
		"in the context":                {want: state.Renewal{Tokens: two}, mode: state.Filesystem, inContext: json2},
		"in the secrets":                {want: state.Renewal{Tokens: two, InSecrets: true}, mode: state.Filesystem, inSec: json2},
		"a block volume gets none":      {want: state.Renewal{Tokens: two}, mode: state.Block},
		"the driver wants calls, alone": {want: state.Renewal{Republish: true, InSecrets: true}, mode: state.Filesystem},
	} {
		t.Run(name, func(t *testing.T) {
			source := &issues{issued: issued}
			r, until, err := tokensOf(t, source, tc.mode, tc.want)
			must(t, err)
			if got := r.GetVolumeContext()[tokensKey]; got != tc.inContext {
				t.Errorf("volume context: got %s, want %s", got, tc.inContext)
			}
			if got := r.GetSecrets()[tokensKey]; got != tc.inSec {
				t.Errorf("secrets: got %s, want %s", got, tc.inSec)
			}
			if r.GetSecrets()["user"] != "x" {
				t.Errorf("the call's own secret is lost: %v", r.GetSecrets())
			}
			if some := tc.inContext+tc.inSec != ""; some != !until.IsZero() || some && (until.Before(issued) || until.After(issued.Add(8*time.Minute))) {
				t.Errorf("to be renewed at %v, want within 8 minutes of %v if there is a token", until, issued)
			}
			for _, asked := range source.asked {
				if asked.Pod.UID != "pod-1" || asked.Pod.ServiceAccount != "web" {
					t.Errorf("asked for a token of %+v", asked.Pod)
				}
			}
		})
	}
}

// A repeated publish sends the current token and secret, and is the same otherwise.
//
// Items: F07, N-72.
func TestARepeatedPublishBringsWhatIsNew(t *testing.T) {
	source := &issues{issued: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	user := 0
	n := connect(t, newFake(), func(c *Config) {
		c.Tokens = source
		c.Secrets = secretFunc(func(state.SecretRef) (map[string]string, error) {
			user++
			return map[string]string{"user": strings.Repeat("x", user)}, nil
		})
	})
	v := n.volume(state.Filesystem)
	v.Spec.PublishRef = ref("publish")
	must(t, n.d.Stage(t.Context(), v))
	m := v.Mounts["pod-1"]
	m.Renewal, m.Pod.ServiceAccount = state.Renewal{Tokens: []state.TokenRequest{{Audience: "vault"}}}, "web"
	v.Mounts["pod-1"] = m
	var sent []*csi.NodePublishVolumeRequest
	for _, hour := range []time.Duration{0, time.Hour} {
		source.issued = source.issued.Add(hour)
		_, err := n.d.Publish(t.Context(), v, "pod-1")
		must(t, err)
		sent = append(sent, proto.CloneOf(n.f.last.(*csi.NodePublishVolumeRequest)))
		m.Phase = state.Present
		v.Mounts["pod-1"] = m
	}
	a, b := sent[0], sent[1]
	if a.GetSecrets()["user"] == b.GetSecrets()["user"] || a.GetVolumeContext()[tokensKey] == b.GetVolumeContext()[tokensKey] {
		t.Errorf("the second call has what the first had: %v, %v", b.GetSecrets(), b.GetVolumeContext())
	}
	for _, r := range sent {
		r.Secrets = nil
		delete(r.VolumeContext, tokensKey)
	}
	if !proto.Equal(a, b) {
		t.Errorf("else they differ: %v, then %v", a, b)
	}
}

func TestWithoutItsTokensAVolumeIsNotPublished(t *testing.T) {
	want := state.Renewal{Tokens: []state.TokenRequest{{Audience: "vault"}}}
	for text, source := range map[string]TokenSource{
		"this node has no issuer of tokens": nil,
		`for audience "vault": forbidden`:   &issues{err: errors.New("forbidden")},
	} {
		r, _, err := tokensOf(t, source, state.Filesystem, want)
		if err == nil || outcome(t, err) != state.Failed || !strings.Contains(err.Error(), text) || r != nil {
			t.Errorf("got %v and request %v, want %q and none", err, r, text)
		}
	}
}

// Rule 7.
//
// Attacks: C8.
func TestTokensAreInNoLogAndNoError(t *testing.T) {
	const value = "eyJhbGciOiJub25lIn0.very.secret"
	b, err := json.Marshal(map[string]any{"vault": map[string]string{"token": value}})
	must(t, err)
	for _, inSecrets := range []bool{false, true} {
		req := &csi.NodePublishVolumeRequest{VolumeId: "v"}
		tokens{json: string(b)}.addTo(req, inSecrets)
		if got := (sanitized{req}).String(); strings.Contains(got, "secret\"") || strings.Contains(got, value) {
			t.Errorf("in a log: %s", got)
		}
		if got := cleanMessage("login failed: "+value, req); strings.Contains(got, value) {
			t.Errorf("in an error: %s", got)
		}
	}
}

// A driver may repeat a secret as it is, quoted, in a URL, in hexadecimal, or in base64,
// alone or as a part. The name of a secret stays: users need it.
//
// Attacks: C52.
func TestNoFormOfASecretIsRepeated(t *testing.T) {
	const secret = "pa\"ss wörd/1+2=3"
	req := &csi.NodeStageVolumeRequest{
		Secrets:       map[string]string{"password": secret},
		VolumeContext: map[string]string{"secretProviderClass": "vault-web", "csi.storage.k8s.io/node-stage-secret-name": "db-login", "tokenAudience": "audience-4711"},
	}
	js, err := json.Marshal(secret)
	must(t, err)
	for name, form := range map[string]string{
		"as it is": secret, "quoted": strconv.Quote(secret), "in JSON": string(js), "in a query": url.QueryEscape(secret), "in a path": url.PathEscape(secret),
		"in hexadecimal": hex.EncodeToString([]byte(secret)), "in HEXADECIMAL": fmt.Sprintf("%X", secret),
		"in base64": base64.StdEncoding.EncodeToString([]byte(secret)), "in URLs' base64": base64.URLEncoding.EncodeToString([]byte(secret)),
		"after a": base64.StdEncoding.EncodeToString([]byte("a:" + secret)), "after ab": base64.StdEncoding.EncodeToString([]byte("ab:" + secret)),
		"before more": base64.StdEncoding.EncodeToString([]byte("abc:" + secret + "more")),
	} {
		form = strings.Trim(form, `"`)
		if got := cleanMessage("login with <"+form+"> failed", req); strings.Contains(got, form[4:len(form)-4]) || !strings.Contains(got, stripped) || !strings.HasPrefix(got, "login with <") || !strings.HasSuffix(got, "> failed") {
			t.Errorf("%s: %s", name, got)
		}
	}
	const names = "secretproviderclass default/vault-web names secret db-login, which is not there"
	if got := cleanMessage(names, req); got != names {
		t.Errorf("names are gone: %s", got)
	}
	if got := cleanMessage("a\u202etxt.exe\u2028b\x1b[2J", req); got != "a txt.exe b [2J" {
		t.Errorf("%q", got)
	}
}

// Two tokens of a cluster with the pod's names exceed the 4 KiB of N-23; everything else counts.
//
// Items: N-23.
func TestTokensDoNotCountAgainstTheSizeLimit(t *testing.T) {
	req := &csi.NodePublishVolumeRequest{VolumeContext: map[string]string{"k": strings.Repeat("x", maxGiven-1)}}
	tokens{json: `{"a":"` + strings.Repeat("x", maxMap) + `"}`}.addTo(req, false)
	if err := checkLimits(req); err != nil {
		t.Error(err)
	}
	req.VolumeContext["l"] = "x"
	if err := checkLimits(req); err == nil {
		t.Error("a volume context of more than 256 KiB is sent")
	}
}

// Secrets often end in a line break, which drivers drop before they use and quote the value.
func TestASecretWithoutItsLineBreakIsNotRepeated(t *testing.T) {
	req := &csi.NodeStageVolumeRequest{Secrets: map[string]string{"password": "hunter2-hunter2\n"}}
	if got := cleanMessage("mount -o password=hunter2-hunter2 failed", req); got != "mount -o password="+stripped+" failed" {
		t.Errorf("%q", got)
	}
}

// A driver may answer with megabytes: only the beginning is read, and no part of a secret is left where it is cut.
func TestAHugeErrorTextIsCutBesideItsSecrets(t *testing.T) {
	secret := strings.Repeat("0123456789abcdef", 200)
	req := &csi.NodeStageVolumeRequest{Secrets: map[string]string{"password": secret}}
	for before := range 40 {
		text := strings.Repeat(".", before*97) + strings.Repeat(secret, 8<<20/len(secret))
		if got := cleanMessage(text, req); strings.Contains(got, "0123") || len(got) > maxMessage+20 {
			t.Fatalf("%d bytes before: %q", before*97, got)
		}
	}
}

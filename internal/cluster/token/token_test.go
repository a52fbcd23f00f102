package token

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-volmgr/csi-volmgr/pkg/csiclient"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

func request(uid string) csiclient.TokenRequest {
	return csiclient.TokenRequest{Pod: state.Pod{UID: state.PodUID(uid), Namespace: "default", Name: "web", ServiceAccount: "web"}, Audience: "vault"}
}

// counter issues numbered tokens, with the requested lifetime or an hour.
type counter struct {
	mu    sync.Mutex
	calls int
	err   error
	wait  chan struct{}
}

func (c *counter) Token(ctx context.Context, r csiclient.TokenRequest) (csiclient.Token, error) {
	c.mu.Lock()
	c.calls++
	n, err, wait := c.calls, c.err, c.wait
	c.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return csiclient.Token{}, context.Cause(ctx)
		}
	}
	if err != nil {
		return csiclient.Token{}, err
	}
	now := time.Now()
	return csiclient.Token{Value: fmt.Sprint("t", n), Issued: now, Expires: now.Add(cmp.Or(r.Lifetime, time.Hour))}, nil
}

func (c *counter) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// Items: F07, L10.
func TestACachedTokenIsRenewedInTheLastFifthOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := &counter{}
		c := NewCache(issuer, nil)
		get := func() string {
			t.Helper()
			got, err := c.Token(t.Context(), request("u1"))
			if err != nil {
				t.Fatal(err)
			}
			return got.Value
		}
		if a, b := get(), get(); a != "t1" || b != "t1" {
			t.Errorf("got %s and %s, want the same token twice", a, b)
		}
		time.Sleep(43 * time.Minute) // 48 minutes less a tenth is 43m12s
		if got := get(); got != "t1" {
			t.Errorf("after 43 minutes of an hour: got %s", got)
		}
		time.Sleep(5 * time.Minute)
		if got := get(); got != "t2" {
			t.Errorf("after 48 minutes of an hour: got %s", got)
		}
		issuer.fail(errors.New("away"))
		time.Sleep(59 * time.Minute)
		if got := get(); got != "t2" {
			t.Errorf("while the issuer fails: got %s, want the one that is good yet", got)
		}
		time.Sleep(time.Minute)
		if got, err := c.Token(t.Context(), request("u1")); err == nil || !strings.Contains(err.Error(), "default/web: away") {
			t.Errorf("after it has expired: %v, %v", got, err)
		}
	})
}

func TestTokensOfPodsThatAreGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache(&counter{}, nil)
		for i := range 100 {
			if _, err := c.Token(t.Context(), request(fmt.Sprint("u", i))); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Hour)
		if _, err := c.Token(t.Context(), request("u0")); err != nil {
			t.Fatal(err)
		}
		if n := len(c.entries); n != 1 {
			t.Errorf("%d tokens are kept, want 1", n)
		}
	})
}

// A pod may go before its first token is issued, for example while the API server is away.
func TestPodsThatNeverGotATokenAreForgotten(t *testing.T) {
	issuer := &counter{}
	issuer.fail(errors.New("away"))
	c := NewCache(issuer, nil)
	for i := range 100 {
		if _, err := c.Token(t.Context(), request(fmt.Sprint("u", i))); err == nil {
			t.Fatal("no error")
		}
	}
	if n := len(c.entries); n != 0 {
		t.Errorf("%d requests are kept, want none", n)
	}
	issuer.fail(nil)
	if _, err := c.Token(t.Context(), request("u0")); err != nil {
		t.Error(err)
	}
}

func TestOneTokenIsAskedForOnceAndAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := &counter{wait: make(chan struct{})}
		c := NewCache(issuer, nil)
		got := make(chan string, 10)
		for range 10 {
			go func() {
				tok, _ := c.Token(t.Context(), request("u1"))
				got <- tok.Value
			}()
		}
		synctest.Wait()
		// A request that hangs delays no other request, and its caller may give up.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Token(ctx, request("u1")); !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		close(issuer.wait)
		for range 10 {
			if v := <-got; v != "t1" {
				t.Errorf("got %q", v)
			}
		}
		if other, err := c.Token(t.Context(), request("u2")); err != nil || other.Value != "t2" {
			t.Errorf("another pod: %v, %v", other.Value, err)
		}
	})
}

func TestWhatIssuersAnswerIsChecked(t *testing.T) {
	for name, bad := range map[string]csiclient.Token{
		"no value": {Expires: time.Now().Add(time.Hour)},
		"expired":  {Value: "x", Expires: time.Now().Add(-time.Second)},
	} {
		if got, err := NewCache(fixed(bad), nil).Token(t.Context(), request("u")); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestATokenThatDoesNotSayWhenItWasIssuedIsRenewedAllTheSame(t *testing.T) {
	got, err := NewCache(fixed{Value: "x", Expires: time.Now().Add(time.Hour)}, nil).Token(t.Context(), request("u"))
	if err != nil || got.Issued.IsZero() || !request("u").RenewAt(got).Before(got.Expires) {
		t.Errorf("%v, %v", got.Issued, err)
	}
}

type fixed csiclient.Token

func (f fixed) Token(context.Context, csiclient.TokenRequest) (csiclient.Token, error) {
	return csiclient.Token(f), nil
}

func TestRequestsAreChecked(t *testing.T) {
	for want, spoil := range map[string]func(*csiclient.TokenRequest){
		"uid, namespace or name": func(r *csiclient.TokenRequest) { r.Pod.UID = "" },
		"service account: found": func(r *csiclient.TokenRequest) { r.Pod.ServiceAccount = "" },
		"lifetime: found 5m0s":   func(r *csiclient.TokenRequest) { r.Lifetime = 5 * time.Minute },
	} {
		r := request("u")
		spoil(&r)
		for what, issuer := range map[string]csiclient.TokenSource{"cache": NewCache(fixed{Value: "x"}, nil), "signer": signer(t, ed25519Key(t))} {
			if _, err := issuer.Token(t.Context(), r); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q in it", what, err, want)
			}
		}
	}
}

// Items: L10.
func TestRenewalsAreSpread(t *testing.T) {
	now := time.Now()
	tok := csiclient.Token{Value: "x", Issued: now, Expires: now.Add(10 * time.Minute)}
	seen := map[time.Time]bool{}
	for i := range 1000 {
		at := request(fmt.Sprint("uid-", i)).RenewAt(tok)
		if wait := at.Sub(now); wait > 8*time.Minute || wait < 7*time.Minute+12*time.Second {
			t.Fatalf("renewed after %v of 10m", wait)
		}
		seen[at] = true
	}
	if len(seen) < 50 {
		t.Errorf("1000 tokens issued together are renewed at %d times", len(seen))
	}
	tok.Expires = now.Add(365 * 24 * time.Hour)
	if wait := request("u").RenewAt(tok).Sub(now); wait > 24*time.Hour {
		t.Errorf("a token of a year is renewed after %v", wait)
	}
	if at := request("u").RenewAt(csiclient.Token{Expires: now}); !at.Equal(now) {
		t.Errorf("a token that says no beginning is renewed at %v", at)
	}
}

func TestATokenShowsNoValue(t *testing.T) {
	tok := csiclient.Token{Value: "very-secret", Expires: time.Now()}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "t", tok)
	for _, text := range []string{fmt.Sprint(tok), fmt.Sprintf("%+v %#v %q", tok, tok, tok), log.String()} {
		if strings.Contains(text, "very-secret") {
			t.Errorf("it is shown: %s", text)
		}
	}
}

func ed25519Key(t *testing.T) crypto.Signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func ecKey(t *testing.T, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func signer(t *testing.T, key crypto.Signer) *Signer {
	t.Helper()
	s, err := NewSigner(key, "https://node.example.com")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The standard library verifies the signature of each algorithm.
func TestSignedTokensVerify(t *testing.T) {
	ec := func(bits int, h crypto.Hash) func(crypto.PublicKey, []byte, []byte) bool {
		return func(k crypto.PublicKey, text, sig []byte) bool {
			d := h.New()
			d.Write(text)
			half := (bits + 7) / 8
			return len(sig) == 2*half && ecdsa.Verify(k.(*ecdsa.PublicKey), d.Sum(nil), new(big.Int).SetBytes(sig[:half]), new(big.Int).SetBytes(sig[half:]))
		}
	}
	for alg, tc := range map[string]struct {
		key    crypto.Signer
		verify func(k crypto.PublicKey, text, sig []byte) bool
	}{
		"EdDSA": {ed25519Key(t), func(k crypto.PublicKey, text, sig []byte) bool {
			return ed25519.Verify(k.(ed25519.PublicKey), text, sig)
		}},
		"ES256": {ecKey(t, elliptic.P256()), ec(256, crypto.SHA256)},
		"ES384": {ecKey(t, elliptic.P384()), ec(384, crypto.SHA384)},
		"ES512": {ecKey(t, elliptic.P521()), ec(521, crypto.SHA512)},
		"RS256": {rsaKey(t), func(k crypto.PublicKey, text, sig []byte) bool {
			h := crypto.SHA256.New()
			h.Write(text)
			return rsa.VerifyPKCS1v15(k.(*rsa.PublicKey), crypto.SHA256, h.Sum(nil), sig) == nil
		}},
	} {
		r := request("u1")
		r.Lifetime = 20 * time.Minute
		tok, err := signer(t, tc.key).Token(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(tok.Value, ".")
		if len(parts) != 3 {
			t.Fatalf("%s: %d parts", alg, len(parts))
		}
		if !tc.verify(tc.key.Public(), []byte(parts[0]+"."+parts[1]), decode(t, parts[2])) {
			t.Errorf("%s: the signature is not the key's", alg)
		}
		var header map[string]string
		var body struct {
			claims
			Audience []string `json:"aud"`
		}
		unmarshal(t, decode(t, parts[0]), &header)
		unmarshal(t, decode(t, parts[1]), &body)
		if header["alg"] != alg || header["kid"] == "" {
			t.Errorf("header %v, want %s", header, alg)
		}
		if body.Subject != "system:serviceaccount:default:web" || body.Private.Pod.UID != "u1" || body.Issuer != "https://node.example.com" ||
			len(body.Audience) != 1 || body.Audience[0] != "vault" || body.Expires-body.Issued != 1200 || tok.Expires.Unix() != body.Expires {
			t.Errorf("%s: claims %+v", alg, body)
		}
	}
}

func TestATokenWithoutAudienceIsForTheIssuer(t *testing.T) {
	r := request("u")
	r.Audience = ""
	tok, err := signer(t, ed25519Key(t)).Token(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if body := string(decode(t, strings.Split(tok.Value, ".")[1])); !strings.Contains(body, `"aud":["https://node.example.com"]`) {
		t.Error(body)
	}
	if life := tok.Expires.Sub(tok.Issued); life != DefaultLifetime {
		t.Errorf("it lives %v", life)
	}
}

func TestKeysAreReadAndBadOnesAreNamed(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, typ string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(ed25519Key(t))
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ecKey(t, elliptic.P256()).(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(rsaKey(t).(*rsa.PrivateKey))
	for _, path := range []string{
		write("pkcs8", 0o600, "PRIVATE KEY", pkcs8), write("sec1", 0o600, "EC PRIVATE KEY", sec1), write("pkcs1", 0o400, "RSA PRIVATE KEY", pkcs1),
	} {
		key, err := ReadKey(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := NewSigner(key, "i"); err != nil {
			t.Error(err)
		}
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		write("open", 0o644, "PRIVATE KEY", pkcs8):      "found mode 0644, want 0600",
		write("public", 0o600, "PUBLIC KEY", []byte{1}): `found a PEM block "PUBLIC KEY"`,
		write("bad", 0o600, "PRIVATE KEY", []byte{1}):   "bad: ",
		text:                         "found no PEM block",
		filepath.Join(dir, "absent"): "no such file",
	} {
		if _, err := ReadKey(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", filepath.Base(path), err, want)
		}
	}
	if _, err := NewSigner(ed25519Key(t), ""); err == nil {
		t.Error("a signer without an issuer")
	}
	if _, err := NewSigner(ecKey(t, elliptic.P224()), "i"); err == nil || !strings.Contains(err.Error(), "224 bits") {
		t.Errorf("%v", err)
	}
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unmarshal(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func TestSoonestExpiryOfTheTokensThatAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache(&counter{}, nil)
		if _, ok := c.Soonest(); ok {
			t.Error("an empty cache has an expiry")
		}
		began := time.Now()
		for _, step := range []struct {
			lifetime, after, soonest time.Duration // soonest is counted from began
		}{
			{3 * time.Hour, 0, 3 * time.Hour},
			{time.Hour, 0, time.Hour},
			{2 * time.Hour, 0, time.Hour},
			{time.Hour, 59 * time.Minute, 119 * time.Minute},             // renewed
			{3 * time.Hour, 61*time.Minute + time.Second, 3 * time.Hour}, // the others have expired
		} {
			time.Sleep(step.after)
			r := request("u")
			r.Lifetime = step.lifetime
			if _, err := c.Token(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if step.lifetime == 3*time.Hour && step.after > 0 {
				// No token was renewed, so none has been forgotten yet.
				r.Pod.UID = "other"
				if _, err := c.Token(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if at, ok := c.Soonest(); !ok || at.Sub(began) != step.soonest {
				t.Errorf("%+v: %v, %v", step, at.Sub(began), ok)
			}
		}
	})
}

// BenchmarkTokenAmongMany measures the token of one more pod.
func BenchmarkTokenAmongMany(b *testing.B) {
	c := NewCache(&counter{}, nil)
	n := 0
	get := func() {
		if _, err := c.Token(b.Context(), request(fmt.Sprint("u", n))); err != nil {
			b.Fatal(err)
		}
		n++
	}
	for range 4000 {
		get()
	}
	b.ReportAllocs()
	for b.Loop() {
		get()
	}
}

func BenchmarkSign(b *testing.B) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := NewSigner(key, "https://node")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Token(b.Context(), request("u")); err != nil {
			b.Fatal(err)
		}
	}
}

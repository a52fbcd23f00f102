package csiclient

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-volmgr/csi-volmgr/internal/host/clip"
)

const (
	stripped = "***stripped***"
	// maxLogged bounds a request in a log line, in bytes.
	maxLogged = 4 << 10
	// maxMessage bounds a driver's error text, in bytes, because records, events and
	// API answers contain it.
	maxMessage = 1 << 10
	// maxCleaned bounds the part of a driver's error text, in bytes, that is searched for
	// secrets: a driver may answer with megabytes.
	maxCleaned = 64 << 10
	// minSecret is the length in bytes of the shortest secret that is removed from a
	// driver's error text; removing shorter ones would mutilate ordinary words.
	minSecret = 4
)

// sanitized is a message for a log line. It is only formatted if a handler logs it.
type sanitized struct{ m proto.Message }

// LogValue implements slog.LogValuer.
func (s sanitized) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String returns the message as JSON without secret fields. It also leaves out values
// that may be secret although CSI does not mark them: mount flags ("password=...") and
// the values of keys that name a token, a password or the like.
func (s sanitized) String() string {
	c := proto.Clone(s.m)
	redact(c.ProtoReflect())
	return clipped(protosanitizer.StripSecrets(c).String(), maxLogged)
}

func redact(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			redactMap(f, v.Map())
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				redact(v.List().Get(i).Message())
			}
		case f.IsList() && f.Name() == "mount_flags":
			for i := range v.List().Len() {
				v.List().Set(i, protoreflect.ValueOfString(stripped))
			}
		case !f.IsList() && f.Message() != nil:
			redact(v.Message())
		}
		return true
	})
}

func redactMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	if f.MapValue().Kind() != protoreflect.StringKind {
		return
	}
	var keys []protoreflect.MapKey
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		if sensitiveKey(k.String()) {
			keys = append(keys, k)
		}
		return true
	})
	for _, k := range keys {
		m.Set(k, protoreflect.ValueOfString(stripped))
	}
}

// sensitiveKey reports whether the value of a key in a context or in parameters may be
// a secret. A key such as secretName or secretNamespace is not sensitive: it says which
// secret is used, and users need to see that.
func sensitiveKey(key string) bool {
	key = strings.ToLower(key)
	if slices.ContainsFunc([]string{"name", "namespace", "class", "ref"}, func(end string) bool {
		return strings.HasSuffix(key, end)
	}) {
		return false
	}
	return slices.ContainsFunc([]string{"token", "secret", "passw", "passphrase", "credential"}, func(word string) bool {
		return strings.Contains(key, word)
	})
}

// cleanMessage removes from a driver's error text the secrets of req (drivers quote
// command lines) and control characters, and cuts it to maxMessage.
func cleanMessage(text string, req proto.Message) string {
	cut, longest := len(text) > maxCleaned, 0
	text = text[:min(len(text), maxCleaned)]
	for _, secret := range secretsOf(req.ProtoReflect()) {
		for _, form := range formsOf(secret) {
			text, longest = strings.ReplaceAll(text, form, stripped), max(longest, len(form))
		}
	}
	if cut { // the end may be the beginning of a secret
		text = text[:max(0, len(text)-longest)]
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) { // a control character, also one for bidirectional text
			return ' '
		}
		return r
	}, text)
	return clipped(text, maxMessage)
}

// formsOf returns the forms in which programs print a value: plain, quoted, in a URL,
// in base64 and in hexadecimal; the longest first.
func formsOf(secret string) []string {
	quoted := strconv.Quote(secret)
	forms := []string{
		secret, quoted[1 : len(quoted)-1], url.QueryEscape(secret), url.PathEscape(secret),
		hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		forms = append(forms, base64Forms(e, secret)...)
	}
	if b, err := json.Marshal(secret); err == nil {
		forms = append(forms, string(b[1:len(b)-1]))
	}
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(forms)
}

// base64Forms returns the strings that occur in the base64 of any text that contains the
// secret, such as "user:password". The secret starts at one of three offsets in a group
// of three bytes; characters that also encode bits of a neighbour are left out.
func base64Forms(e *base64.Encoding, secret string) (forms []string) {
	for before, from := range []int{0, 2, 3} {
		b := append(make([]byte, before), secret...)
		s := e.EncodeToString(b)
		if len(b)%3 != 0 {
			s = s[:len(s)-1]
		}
		if s = s[from:]; len(s) >= minSecret {
			forms = append(forms, s)
		}
	}
	return append(forms, e.EncodeToString([]byte(secret)))
}

// secretsOf lists the secret values in m: its secret fields and the values of sensitive
// keys, longest first, because one may contain another. If a value is JSON (service
// account tokens), the list also has the strings in it. Drivers often drop the line break
// at the end of a value, so the list also has each value without the space around it.
func secretsOf(m protoreflect.Message) []string {
	var found []string
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind:
				all, _ := proto.GetExtension(f.Options(), csi.E_CsiSecret).(bool)
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					if all || sensitiveKey(k.String()) {
						found = append(found, v.String())
						found = appendJSONStrings(found, v.String())
					}
					return true
				})
			case f.IsList() && f.Name() == "mount_flags":
				for i := range v.List().Len() {
					if key, value, ok := strings.Cut(v.List().Get(i).String(), "="); ok && sensitiveKey(key) {
						found = append(found, value)
					}
				}
			case !f.IsMap() && !f.IsList() && f.Message() != nil:
				walk(v.Message())
			}
			return true
		})
	}
	walk(m)
	for _, s := range found {
		found = append(found, strings.TrimSpace(s))
	}
	found = slices.DeleteFunc(found, func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(found)
}

func appendJSONStrings(to []string, text string) []string {
	if !strings.HasPrefix(text, "{") {
		return to
	}
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return to
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			to = append(to, v)
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return to
}

// clipped cuts text to at most limit bytes and marks the cut.
func clipped(text string, limit int) string { return clip.Text(text, limit, "... (cut)") }

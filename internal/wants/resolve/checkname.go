package resolve

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

func checkDriver(field, name string) (Fault, bool) {
	if len(name) <= 63 && driverName.MatchString(name) {
		return Fault{}, false
	}
	return Fault{field, name, "a driver name: 1 to 63 letters, digits, dashes and dots, a letter or digit first and last"},
		true
}

// hostName, with at most maxHostName bytes, and address match the name of a server. A count in the expression would
// cost each start of the program more than all its uses.
var (
	hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?$`)
	address  = regexp.MustCompile(`^[0-9A-Fa-f:.]{2,45}(%[A-Za-z0-9._-]{1,15})?$`) // IPv6, with an optional zone
)

const maxHostName = 253

func isServer(s string) bool {
	return len(s) <= maxHostName && hostName.MatchString(s) || address.MatchString(s)
}

func checkLabel(field, name string) (Fault, bool) {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return Fault{}, false
	}
	return Fault{field, name, "1 to 63 lower-case letters, digits and dashes, a letter or digit first and last"}, true
}

func checkSubdomain(field, name string) (Fault, bool) {
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return Fault{}, false
	}
	return Fault{field, name, "1 to 253 lower-case letters, digits, dashes and dots, a letter or digit first and last"},
		true
}

// checkText refuses text that may not be in any request field or argument.
func checkText(field, s string, limit int) []Fault {
	if len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) {
		return nil
	}
	return []Fault{{field, s, fmt.Sprintf("at most %d bytes of UTF-8 without control characters", limit)}}
}

// checkPlain is checkText for a required field.
func checkPlain(field, s string) []Fault {
	if s == "" {
		return []Fault{{field, s, "a value"}}
	}
	return checkText(field, s, 253)
}

// optionKeys returns mount options for a message, which users see who may only read: a value may be a
// password, and so may what follows it without a key.
func optionKeys(options ...string) string {
	var all []string
	hiding := false
	for o := range strings.SplitSeq(strings.Join(options, ","), ",") {
		key, _, has := strings.Cut(o, "=")
		switch {
		case has:
			o, hiding = key+"=...", true
		case hiding:
			o = "..."
		}
		all = append(all, o)
	}
	return strings.Join(all, ",")
}

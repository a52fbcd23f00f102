package bundle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/host/pathname"
)

// left replaces what was removed.
const left = "LEFT-OUT"

// secretLike matches text that looks like a secret anywhere.
var secretLike = []struct {
	re *regexp.Regexp
	by string
}{
	// Users and passwords in URLs.
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'@]+@`), "${1}" + left + "@"},
	// Values after a word for a secret and an equals sign, in options of mounts and
	// programs and in URL queries; also in quotes, which JSON escapes.
	{regexp.MustCompile(`(?i)([a-z_-]*(?:passw(?:or)?d|passphrase|secret|token|credential|` +
		`api_?key|access_?key)[a-z_-]*=)(?:\\"[^"\\]*|"[^"\s,:{}]+"|'[^'"\n]*'|[^\s,;&"'{}]+)`), "${1}" + left},
	// JSON web tokens, and PEM keys with real or escaped newlines, whole or cut off.
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+`), left},
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`), left},
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*`), left},
}

// Clean returns text without what looks like a secret. It is only the last filter:
// [JSON] and [Mounts] remove what is known to hold secrets.
func Clean(text []byte) []byte {
	for _, s := range secretLike {
		text = s.re.ReplaceAll(text, []byte(s.by))
	}
	return text
}

// foreign are the fields of answers whose values a driver or a user wrote: parameters,
// contexts, options. A password there is a mistake, but it happens.
var foreign = []string{"context", "publishContext", "config", "mountFlags"}

// JSON returns v as indented JSON without the values of foreign fields. Their keys, and
// the number of their elements, stay.
func JSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	var plain any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber() // float64 cannot represent mount and device numbers exactly
	if err := dec.Decode(&plain); err != nil {
		return nil, fmt.Errorf("decode %T: %w", v, err)
	}
	if b, err = json.MarshalIndent(without(plain, false), "", "  "); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return append(b, '\n'), nil
}

// without replaces the values of foreign fields in v; all says that v is inside one.
func without(v any, all bool) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = without(v[key], all || slices.Contains(foreign, key))
		}
		return v
	case []any:
		for i := range v {
			v[i] = without(v[i], all)
		}
		return v
	case string:
		if all {
			return left
		}
	}
	return v
}

// plainOptions are the file system options whose values are not secret.
var plainOptions = strings.Fields("vers rsize wsize namlen proto timeo retrans sec addr clientaddr mountaddr " +
	"mountvers mountport mountproto " +
	"local_lock size mode uid gid nr_inodes data errors stripe logbufs logbsize space_cache subvolid subvol user_id " +
	"group_id max_read")

// Mounts returns the lines of a mount table (in the form of /proc/PID/mountinfo) whose
// mount point is at or below one of dirs, without the values of options that may be
// secret.
func Mounts(table io.Reader, dirs ...string) ([]byte, error) {
	var out bytes.Buffer
	lines := bufio.NewScanner(table)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		below := func(dir string) bool { return pathname.Within(fields[4], filepath.Clean(dir)) }
		if len(fields) < 6 || !slices.ContainsFunc(dirs, below) {
			continue
		}
		last := len(fields) - 1 // the file system's options; the fields before are the kernel's own
		options := strings.Split(fields[last], ",")
		for i, o := range options {
			if key, _, valued := strings.Cut(o, "="); valued && !slices.Contains(plainOptions, key) {
				options[i] = key + "=" + left
			}
		}
		fields[last] = strings.Join(options, ",")
		fmt.Fprintln(&out, strings.Join(fields, " "))
	}
	return out.Bytes(), lines.Err()
}

package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/pkg/state"
)

// none fills an empty cell of a table.
const none = "-"

// size formats bytes as in manifests: "256Mi", "1.5Gi"; "-" for 0.
func size(bytes int64) string {
	if bytes <= 0 {
		return none
	}
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	v, u := float64(bytes), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + units[u]
}

// modeShort has kubectl's abbreviations of access modes.
var modeShort = map[state.AccessMode]string{
	state.ReadWriteOnce: "RWO", state.ReadOnlyMany: "ROX", state.ReadWriteMany: "RWX", state.ReadWriteOncePod: "RWOP",
}

func accessModes(modes []state.AccessMode) string {
	out := make([]string, len(modes))
	for i, m := range modes {
		if out[i] = modeShort[m]; out[i] == "" {
			out[i] = string(m)
		}
	}
	return orNone(strings.Join(out, ","))
}

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func access(readOnly bool) string {
	if readOnly {
		return "ro"
	}
	return "rw"
}

// paint gives a word the colour of its meaning: as wanted, in progress, or wrong.
func paint(word string) string {
	colour := ""
	switch word {
	case "Mounted", "Up", "Bound", "ok", "yes", server.Fine:
		colour = "\x1b[32m" // green
	case "Mounting", "Leaving", "Staged", "Attached", "Pending", "InDoubt", "warn", server.Working, server.Waiting:
		colour = "\x1b[33m" // yellow
	case "Down", "Unusable", "Quarantined", "fail", "no", server.Stuck, server.Unknown:
		colour = "\x1b[31m" // red
	default:
		return word
	}
	return colour + word + "\x1b[0m"
}

// plain replaces characters that would move the cursor, break a line or change the direction of writing,
// because texts come from drivers and files.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, s)
}

// short cuts s to n characters, with an ellipsis at the end if it was longer.
func short(s string, n int) string {
	r := []rune(plain(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:max(n-1, 0)]) + "…"
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

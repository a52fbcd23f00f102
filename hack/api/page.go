package main

import (
	"fmt"
	"strings"
)

// page is the document of these names.
func page(all []name) string {
	var b strings.Builder
	names, fields := count(all)
	fmt.Fprintf(&b, "# The exported names of the packages below pkg, by make api.\n")
	fmt.Fprintf(&b, "# names: %d (functions, types, methods, constants, variables)\n# fields: %d\n", names, fields)
	for _, n := range all {
		if n.kind != unlisted {
			fmt.Fprintln(&b, n.line())
		}
	}
	return b.String()
}

// count counts the names that have a line, and the fields apart from them.
func count(all []name) (names, fields int) {
	for _, n := range all {
		switch n.kind {
		case unlisted:
		case aField:
			fields++
		default:
			names++
		}
	}
	return names, fields
}

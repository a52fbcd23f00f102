package main

import (
	"fmt"
	"strings"
)

const head = `# Fields of Kubernetes' objects

What csi-volmgr does with each field of the API types of k8s.io/api 0.37 (Kubernetes 1.37) that an author can write and that
concerns volumes. ` + "`make fields-docs`" + ` writes this page from hack/fields/fields.txt. The tests of that package walk the types: a new field
fails them until there is a decision for it.

- **done**: csi-volmgr does what the field asks for. Shown by a test, or by a change of the field to the value, which changes what a
  pod's volumes are resolved to or is a problem that names the field.
- **refused**: an object with the field is not taken, or its volume waits, with an error that names object, field, what was found
  and what is wanted.
- **none**: the field says nothing about a volume on a node, and why.

` + "`containers[]`" + ` stands for initContainers, containers and ephemeralContainers. What lies below a field that is refused or has no
meaning goes with it.
`

// page returns the document.
func page(all []decision) string {
	var b strings.Builder
	b.WriteString(head)
	kind := ""
	for _, d := range all {
		if d.kind != kind {
			kind = d.kind
			fmt.Fprintf(&b, "\n## %s\n\n| field | decision | shown by, or why |\n| --- | --- | --- |\n", kind)
		}
		var said []string
		switch d.by {
		case bySet, byProblem:
			if d.decision == done {
				said = append(said, "a change to `"+strings.ReplaceAll(d.value, "|", `\|`)+"`")
			}
		case byTest:
			said = append(said, "`"+d.pkg+" "+d.test+"`")
		}
		if d.why != "" {
			said = append(said, d.why)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", d.path, d.decision, strings.Join(said, "; "))
	}
	return b.String()
}

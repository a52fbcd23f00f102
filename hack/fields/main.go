// Program fields writes docs/reference/fields.md: what csi-volmgr does with each field
// of Kubernetes' API types that concerns volumes, as decided in fields.txt.
//
// Its tests walk the types and fail on a field without a decision and on a decision for a
// field that does not exist. They prove each decision that a change of the field can
// prove.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// document is the path of the page, from the root of the tree.
const document = "docs/reference/fields.md"

func main() {
	root := "."
	if len(os.Args) == 2 {
		root = os.Args[1]
	}
	if err := write(root); err != nil {
		fmt.Fprintln(os.Stderr, "fields:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	t, err := parse(table)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(document)), []byte(page(t)), 0o644)
}

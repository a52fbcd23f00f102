// Program fields writes docs/reference/fields.md: what csi-volmgr does with each field
// of Kubernetes' API types that concerns volumes, as fields.txt decides it.
//
// Its tests walk the types, so that a field without a decision fails, and so does a
// decision for a field that there is not; and they prove each decision that can be proven
// by a change of the field.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// document is the page, from the root of the tree.
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

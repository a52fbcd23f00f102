// Program api writes docs/reference/go-api.txt: the exported names of the packages below
// pkg, which programs of others import.
//
// Its tests compare the file with the tree, bound how many names and fields there are, and
// find names that show a type of a package that others cannot import.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// document is the path of the list, from the root of the tree.
const document = "docs/reference/go-api.txt"

func main() {
	root := "."
	if len(os.Args) == 2 {
		root = os.Args[1]
	}
	if err := write(root); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	d, err := load(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(document)), []byte(page(d.names())), 0o644)
}

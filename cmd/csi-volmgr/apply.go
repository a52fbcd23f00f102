package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/wants/manifest"
	"github.com/spf13/cobra"
)

func (p *program) applyCommand() *cobra.Command {
	var files []string
	var skip bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE|DIRECTORY|-",
		Short: "Create or update the objects in a manifest",
		Long: `Create or update the objects in manifests, which are YAML or JSON. The daemon takes all
objects of a file, or none. A vendor's file often has objects that run its driver in a
cluster; --skip-unknown leaves them out. The kinds are:

` + wrapped(manifest.KindNames()),
		Example: `  csi-volmgr apply -f web.yaml
  generate | csi-volmgr apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("a manifest is named with -f: csi-volmgr apply -f %s", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return usagef("name a manifest with -f")
			}
			c := p.client()
			defer c.Close()
			return p.manifests(files, func(m server.Manifest) ([]server.Applied, error) {
				m.SkipUnknown = skip
				return c.Apply(cmd.Context(), m)
			})
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil,
		"`FILE`, directory, or - for standard input; may be repeated")
	skipFlag(cmd, &skip)
	noKustomize(cmd)
	return cmd
}

// skipFlag adds --skip-unknown.
func skipFlag(cmd *cobra.Command, skip *bool) {
	cmd.Flags().BoolVar(skip, "skip-unknown", false,
		"leave out objects of kinds that csi-volmgr does not read; fields that it does not know stay errors")
}

// wrapped returns words, separated by commas, in lines of a help text.
func wrapped(words []string) string {
	const width = 80
	var b strings.Builder
	column := 0
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if i > 0 && column+1+len(word) > width {
			b.WriteByte('\n')
			column = 0
		} else if i > 0 {
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// also prints a failure that is not the verb's last; nil is none.
func (p *program) also(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(p.stderr, "csi-volmgr: "+p.explainError(err))
	}
}

// manifests sends each file to do and prints the results of its objects. A refused file does not keep
// later ones from being sent, but makes the verb fail.
func (p *program) manifests(paths []string, do func(server.Manifest) ([]server.Applied, error)) error {
	files, err := expand(paths)
	if err != nil {
		return err
	}
	var failed error
	var warnings []server.Applied
	var skipped []manifest.Other
	objects := 0
	for _, file := range files {
		m, err := p.read(file)
		if err != nil {
			return err
		}
		done, err := do(m)
		if errors.Is(err, client.ErrNoDaemon) || errors.Is(err, context.Canceled) {
			return err // of the other files, too
		}
		objects += len(done)
		if err != nil {
			p.also(failed)
			failed = err
			continue
		}
		for _, a := range done {
			if a.Result == "skipped" {
				skipped = append(skipped, manifest.Other{Kind: a.Kind})
				continue
			}
			if err := writeAll(p.stdout, appliedLine(a)); err != nil {
				return err
			}
			switch {
			case a.Kind == "StorageClass": // a claim in an earlier file may have waited for it
				warnings = slices.DeleteFunc(warnings, func(w server.Applied) bool { return w.Kind == "PersistentVolumeClaim" })
			case a.Warning != "":
				warnings = append(warnings, a)
			}
		}
	}
	if len(skipped) > 0 {
		line := fmt.Sprintf("skipped: %s; they run a driver, or are for other programs of a cluster\n",
			plain(manifest.Count(skipped)))
		if err := writeAll(p.stderr, line); err != nil {
			return err
		}
	}
	for _, w := range warnings {
		if err := writeAll(p.stderr, "warning: "+plain(w.Warning)+"\n"); err != nil {
			return err
		}
	}
	if failed == nil && objects == 0 {
		return fmt.Errorf("no object in %s", strings.Join(files, ", "))
	}
	return failed
}

func appliedLine(a server.Applied) string {
	name := a.Name
	if a.Namespace != "" && a.Namespace != defaultNS {
		name = a.Namespace + "/" + name
	}
	line := fmt.Sprintf("%s/%s %s", strings.ToLower(a.Kind), name, a.Result)
	if a.Note != "" {
		line += ": " + plain(a.Note)
	}
	return line + "\n"
}

// expand replaces directories by the manifests directly in them, sorted.
func expand(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		st, err := os.Stat(path)
		if path == "-" || err == nil && !st.IsDir() {
			out = append(out, path)
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				out = append(out, filepath.Join(path, e.Name()))
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no .yaml, .yml or .json file in %v", paths)
	}
	return out, nil
}

func (p *program) read(file string) (server.Manifest, error) {
	in := p.stdin
	if file == "-" {
		file = "stdin"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return server.Manifest{}, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, server.MaxManifest+1))
	if err != nil {
		return server.Manifest{}, fmt.Errorf("read %s: %w", file, err)
	}
	if len(data) > server.MaxManifest {
		return server.Manifest{}, fmt.Errorf("%s is over %d bytes: split it", file, server.MaxManifest)
	}
	return server.Manifest{Name: file, Data: data}, nil
}

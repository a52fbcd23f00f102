package main

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/csi-volmgr/csi-volmgr/pkg/server"
)

// watchTable shows a resource and then each change of it, until ctx ends. A
// table gets a first column that tells "set" (new or changed) from "gone".
func watchTable[T any](ctx context.Context, p *program, o getOptions, r resource[T]) error {
	var first []server.Event[T]
	listed := false
	lines := watchLines[T]{p: p, o: o, r: r}
	err := r.watch(ctx, func(e server.Event[T]) error {
		switch {
		case e.Type == "listed":
			listed = true
			return lines.write(first)
		case !r.wanted(e.Item, o):
			return nil
		case !listed:
			first = append(first, e)
			return nil
		default:
			return lines.write([]server.Event[T]{e})
		}
	})
	return err
}

// wanted reports whether an item of a watch was asked for.
func (r resource[T]) wanted(item T, o getOptions) bool {
	if len(o.names) == 0 {
		return r.inNamespace(item, o)
	}
	_, err := r.choose([]T{item}, getOptions{namespace: o.namespace, names: o.names[:1]})
	for _, name := range o.names[1:] {
		if err == nil {
			break
		}
		_, err = r.choose([]T{item}, getOptions{namespace: o.namespace, names: []string{name}})
	}
	return err == nil
}

// watchLines writes the rows of a watch; its columns grow and never shrink.
type watchLines[T any] struct {
	p      *program
	o      getOptions
	r      resource[T]
	widths []int
}

func (l *watchLines[T]) write(events []server.Event[T]) error {
	if structured(l.o.output) {
		return l.documents(events)
	}
	v := l.p.view(l.o)
	var rows [][]string
	if l.widths == nil {
		rows = append(rows, append([]string{"EVENT"}, heads(l.r.columns, v)...))
		l.widths = make([]int, len(rows[0]))
	}
	for _, e := range events {
		rows = append(rows, append([]string{e.Type}, row(l.r.columns, e.Item, v)...))
	}
	for _, cells := range rows {
		for i, c := range cells {
			l.widths[i] = max(l.widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, cells := range rows {
		line := ""
		for i, c := range cells {
			line += c + strings.Repeat(" ", l.widths[i]-utf8.RuneCountInString(c)+3)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return writeAll(l.p.stdout, b.String())
}

// documents writes events as JSON lines, as YAML documents, or as a template has them.
func (l *watchLines[T]) documents(events []server.Event[T]) error {
	for _, e := range events {
		var b []byte
		var err error
		switch l.o.output {
		case "json": // a line each
			if b, err = json.Marshal(e); err == nil {
				b = append(b, '\n')
			}
		case "yaml":
			if b, err = render(e, "yaml"); err == nil {
				b = append([]byte("---\n"), b...)
			}
		default:
			b, err = render(e, l.o.output)
		}
		if err != nil {
			return err
		}
		if err := writeAll(l.p.stdout, string(b)); err != nil {
			return err
		}
	}
	return nil
}

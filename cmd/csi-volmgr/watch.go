package main

import (
	"context"
	"encoding/json"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// watchTable shows a resource and then each change of it, until ctx ends. The first column of its table
// tells "set" (new or changed) from "gone".
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
		return r.inNamespace(item, o) && !r.leftOut(item, o)
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

// watchLines writes the rows of a watch.
type watchLines[T any] struct {
	p    *program
	o    getOptions
	r    resource[T]
	grid *grid
}

func (l *watchLines[T]) write(events []server.Event[T]) error {
	if structured(l.o.output) {
		return l.documents(events)
	}
	v := l.p.view(l.o)
	columns := eventColumns(l.r.columns)
	var rows [][]string
	if l.grid == nil {
		l.grid = newGrid(columns, v)
		rows = append(rows, heads(columns, v))
	}
	for _, e := range events {
		rows = append(rows, row(columns, e, v))
	}
	return writeAll(l.p.stdout, l.grid.lines(rows))
}

// eventColumns returns the columns of events about items that have columns.
func eventColumns[T any](columns []column[T]) []column[server.Event[T]] {
	out := []column[server.Event[T]]{{head: "EVENT", value: func(e server.Event[T], _ view) string { return e.Type }}}
	for _, c := range columns {
		out = append(out, column[server.Event[T]]{
			head: c.head, wide: c.wide, state: c.state,
			value: func(e server.Event[T], v view) string { return c.value(e.Item, v) },
		})
	}
	return out
}

// documents writes events as JSON lines, as YAML documents, or through a template.
func (l *watchLines[T]) documents(events []server.Event[T]) error {
	for _, e := range events {
		b, err := renderOne(e, l.o.output)
		if err != nil {
			return err
		}
		if err := writeAll(l.p.stdout, string(b)); err != nil {
			return err
		}
	}
	return nil
}

// renderOne renders one of many items: as a line of JSON, a document of YAML, or through a template.
func renderOne(v any, form string) ([]byte, error) {
	switch form {
	case formJSON:
		b, err := json.Marshal(v)
		return append(b, '\n'), err
	case formYAML:
		b, err := render(v, form)
		return append([]byte("---\n"), b...), err
	}
	return render(v, form)
}

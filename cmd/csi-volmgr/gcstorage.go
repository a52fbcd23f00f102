package main

import (
	"context"
	"fmt"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

var storedColumns = []column[server.Stored]{
	{head: "KIND", value: func(s server.Stored, _ view) string { return s.Kind }},
	{head: "DRIVER", value: func(s server.Stored, _ view) string { return plain(string(s.Driver)) }},
	{head: "HANDLE", value: func(s server.Stored, _ view) string { return plain(s.Handle) }},
	{head: "SIZE", value: func(s server.Stored, _ view) string { return size(s.SizeBytes) }},
	{head: "AGE", value: func(s server.Stored, v view) string { return v.age(s.Created) }},
	{head: "OF", value: func(s server.Stored, _ view) string { return orNone(plain(s.Of)) }},
	{head: "MAY BE", value: func(s server.Stored, _ view) string { return orNone(plain(s.MayBe)) }},
}

// gcStorage lists volumes and snapshots in drivers' storage that no record knows. It fails if a driver
// did not list everything, because the list is then incomplete.
func (p *program) gcStorage(ctx context.Context, output string) error {
	c := p.client()
	defer c.Close()
	found, err := c.Unowned(ctx)
	if err != nil {
		return err
	}
	if structured(output) {
		err = p.document(found, output)
	} else {
		err = p.storedTable(found, output)
	}
	if err == nil && len(found.Unlisted) > 0 {
		return codeError(exitFailed)
	}
	return err
}

func (p *program) storedTable(found server.Unowned, output string) error {
	if len(found.Items) > 0 {
		if err := writeTable(p.stdout, storedColumns, found.Items, p.look(output)); err != nil {
			return err
		}
	}
	text := ""
	for _, u := range found.Unlisted {
		text += fmt.Sprintf("not all of driver %s: %s\n", plain(string(u.Driver)), plain(u.Why))
	}
	text += fmt.Sprintf("%d that no record of this node knows; they may be another node's, and nothing is deleted\n",
		len(found.Items))
	return writeAll(p.stdout, text)
}

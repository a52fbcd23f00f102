package main

import (
	"context"
	"slices"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/client"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
)

// checkContainer checks the flags that select the pod and container of mounts.
func (o *getOptions) checkContainer(kind string) error {
	pods := len(o.names)
	if o.pod != "" {
		pods++
	}
	switch {
	case o.container == "" && (o.recursive || o.mountOptions || o.userNamespaces):
		return usagef("--runtime-recursive-read-only, --runtime-mount-options and --runtime-user-namespaces are for " +
			"--container only")
	case o.container != "" && (kind != "mounts" || pods != 1):
		return usagef("--container is for the mounts of one pod: get mounts --pod NAME --container %s", o.container)
	}
	return nil
}

// getContainerMounts lists the mounts of one container.
func (p *program) getContainerMounts(ctx context.Context, c *client.Client, o getOptions) error {
	items, err := c.ContainerMounts(ctx, server.Container{
		Namespace: o.namespace, Pod: o.names[0], Name: o.container, RecursiveReadOnly: o.recursive,
		MountOptions: o.mountOptions, UserNamespaces: o.userNamespaces,
	})
	switch {
	case err != nil:
		return err
	case structured(o.output):
		return p.document(server.List[server.ContainerMount]{Items: items}, o.output)
	case len(items) == 0:
		return writeAll(p.stderr, "The container has no volumes.\n")
	default:
		return writeTable(p.stdout, containerColumns, items, p.view(o))
	}
}

var containerColumns = []column[server.ContainerMount]{
	{head: "CONTAINER PATH", value: func(m server.ContainerMount, _ view) string { return plain(m.ContainerPath) }},
	{head: "VOLUME", value: func(m server.ContainerMount, _ view) string { return m.Volume }},
	{head: "ACCESS", value: func(m server.ContainerMount, _ view) string {
		switch {
		case m.Device:
			return m.Permissions
		case m.RecursiveReadOnly:
			return "rro"
		}
		return access(m.ReadOnly)
	}},
	{head: "PROPAGATION", value: func(m server.ContainerMount, _ view) string { return orNone(m.Propagation) }},
	{head: "OPTIONS", value: func(m server.ContainerMount, _ view) string {
		options := slices.Clone(m.MountOptions)
		if m.MapIDs {
			options = append(options, "idmap")
		}
		return orNone(strings.Join(options, ","))
	}},
	{head: "HOST PATH", value: func(m server.ContainerMount, _ view) string {
		if m.Image != "" {
			return "image " + plain(m.Image)
		}
		return plain(m.HostPath)
	}},
	{head: "SUBPATH", wide: true, value: func(m server.ContainerMount, _ view) string { return orNone(plain(m.SubPath)) }},
	{head: "NOTE", wide: true, value: func(m server.ContainerMount, _ view) string {
		return orNone(strings.TrimSpace(m.Note))
	}},
}

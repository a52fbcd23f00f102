package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/csi-volmgr/csi-volmgr/internal/serve/server"
	"github.com/csi-volmgr/csi-volmgr/internal/serve/stats"
)

var driverColumns = []column[server.DriverStatus]{
	{head: "NAME", value: func(d server.DriverStatus, _ view) string { return string(d.Name) }},
	{head: "STATUS", state: true, value: func(d server.DriverStatus, _ view) string { return driverState(d) }},
	{head: "VERSION", value: func(d server.DriverStatus, _ view) string { return orNone(plain(d.Version)) }},
	{head: "GENERATION", value: func(d server.DriverStatus, _ view) string { return fmt.Sprint(d.Generation) }},
	{head: "VOLUMES", value: func(d server.DriverStatus, _ view) string { return fmt.Sprint(d.Volumes) }},
	{head: "CALLS", value: func(d server.DriverStatus, _ view) string { return fmt.Sprint(d.Calls) }},
	{head: "SINCE", value: func(d server.DriverStatus, v view) string { return v.age(d.Since) }},
	{head: "PROBLEM", value: func(d server.DriverStatus, v view) string { return v.reason(driverProblem(d)) }},
	{head: "NODE ID", wide: true, value: func(d server.DriverStatus, _ view) string { return orNone(plain(d.NodeID)) }},
	{head: "ENDPOINT", wide: true, value: func(d server.DriverStatus, _ view) string { return orNone(d.Endpoint) }},
	{head: "CAPABILITIES", wide: true, value: func(d server.DriverStatus, _ view) string {
		return orNone(strings.Join(d.Capabilities, ","))
	}},
}

// driverState returns a driver's state in a word.
func driverState(d server.DriverStatus) string {
	switch {
	case !d.Up:
		return "Down"
	case len(d.Lacks) > 0:
		return "Unusable"
	case controllerAway(d):
		return "Degraded"
	}
	return "Up"
}

// driverProblem returns what is wrong with a driver.
func driverProblem(d server.DriverStatus) string {
	if len(d.Lacks) > 0 {
		return strings.Join(d.Lacks, ", ") + " is not installed; csi-volmgr doctor says what to install"
	}
	if d.Problem == "" && controllerAway(d) {
		return fmt.Sprintf("its controller at %s is away: %s", d.Controller.Endpoint, d.Controller.Problem)
	}
	return d.Problem
}

// controllerAway reports whether the driver's controller has an endpoint of its own, which does not answer.
func controllerAway(d server.DriverStatus) bool {
	return d.Controller != nil && d.Controller.Endpoint != "" && !d.Controller.Up
}

var socketColumns = []column[server.SocketStatus]{
	{head: "SOCKET", value: func(s server.SocketStatus, _ view) string { return plain(s.Path) }},
	{head: "DRIVER", value: func(s server.SocketStatus, _ view) string { return orNone(plain(string(s.Driver))) }},
	{head: "STATE", value: func(s server.SocketStatus, _ view) string { return orNone(s.State) }},
	{head: "PROBLEM", value: func(s server.SocketStatus, v view) string { return v.reason(s.Problem) }},
}

var pvColumns = []column[server.PVStatus]{
	{head: "NAME", value: func(s server.PVStatus, _ view) string { return s.Name }},
	{head: "CAPACITY", value: func(s server.PVStatus, _ view) string { return size(s.CapacityBytes) }},
	{head: "ACCESS", value: func(s server.PVStatus, _ view) string { return accessModes(s.AccessModes) }},
	{head: "RECLAIM", value: func(s server.PVStatus, _ view) string { return orNone(s.ReclaimPolicy) }},
	{head: "STATUS", state: true, value: func(s server.PVStatus, _ view) string { return orNone(s.Status) }},
	{head: "CLAIM", value: func(s server.PVStatus, _ view) string { return orNone(s.Claim) }},
	{head: "DRIVER", value: func(s server.PVStatus, _ view) string { return orNone(string(s.Driver)) }},
	{head: "MODE", wide: true, value: func(s server.PVStatus, _ view) string { return orNone(string(s.Mode)) }},
	{head: "HANDLE", wide: true, value: func(s server.PVStatus, _ view) string { return orNone(plain(s.Handle)) }},
}

var claimColumns = []column[server.ClaimStatus]{
	{head: "NAMESPACE", value: func(s server.ClaimStatus, _ view) string { return s.Namespace }},
	{head: "NAME", value: func(s server.ClaimStatus, _ view) string { return s.Name }},
	{head: "STATUS", state: true, value: func(s server.ClaimStatus, _ view) string { return orNone(s.Phase) }},
	{head: "VOLUME", value: func(s server.ClaimStatus, _ view) string { return orNone(s.Volume) }},
	{head: "CAPACITY", value: func(s server.ClaimStatus, _ view) string { return size(s.CapacityBytes) }},
	{head: "ON NODE", value: func(s server.ClaimStatus, _ view) string { return size(s.NodeBytes) }},
	{head: "ACCESS", value: func(s server.ClaimStatus, _ view) string { return accessModes(s.AccessModes) }},
	{head: "CLASS", value: func(s server.ClaimStatus, _ view) string { return orNone(s.Class) }},
	{head: "RECLAIM", value: func(s server.ClaimStatus, _ view) string { return orNone(s.ReclaimPolicy) }},
	{head: "WAITING FOR", value: func(s server.ClaimStatus, v view) string {
		if s.Retry.Attempts > 0 {
			return v.reason(s.Retry.Failure())
		}
		return v.reason(s.Reason)
	}},
	{head: "POD", wide: true, value: func(s server.ClaimStatus, _ view) string { return orNone(s.Pod) }},
	{head: "REQUESTED", wide: true, value: func(s server.ClaimStatus, _ view) string { return size(s.RequestedBytes) }},
	{head: "MODE", wide: true, value: func(s server.ClaimStatus, _ view) string { return orNone(string(s.Mode)) }},
	{head: "DRIVER", wide: true, value: func(s server.ClaimStatus, _ view) string { return orNone(string(s.Driver)) }},
}

var statColumns = []column[stats.Status]{
	{head: "OF", value: func(s stats.Status, _ view) string { return plain(s.Key) }},
	{head: "CLAIM", value: func(s stats.Status, _ view) string { return orNone(s.Claim) }},
	{head: "SIZE", value: func(s stats.Status, _ view) string { return size(s.Bytes.Total) }},
	{head: "USED", value: func(s stats.Status, _ view) string { return size(s.Bytes.Used) }},
	{head: "AVAILABLE", value: func(s stats.Status, _ view) string { return size(s.Bytes.Available) }},
	{head: "INODES USED", wide: true, value: func(s stats.Status, _ view) string {
		if s.Inodes == (stats.Usage{}) {
			return none
		}
		return fmt.Sprintf("%d of %d", s.Inodes.Used, s.Inodes.Total)
	}},
	{head: "HEALTH", value: func(s stats.Status, _ view) string { return orNone(string(s.Health)) }},
	{head: "AGE", value: func(s stats.Status, v view) string {
		if s.At.IsZero() {
			return none
		}
		return v.age(s.At)
	}},
	{head: "PROBLEM", value: func(s stats.Status, v view) string {
		switch {
		case len(s.Conditions) == 0:
			return v.reason(s.Error)
		case s.Conditions[0].Controller:
			return v.reason("Controller service: " + s.Conditions[0].String())
		}
		return v.reason(s.Conditions[0].String())
	}},
}

var problemColumns = []column[server.Problem]{
	{head: "SOURCE", value: func(b server.Problem, _ view) string { return b.Source }},
	{head: "SINCE", value: func(b server.Problem, v view) string { return v.age(b.Since) }},
	// In full, because a problem is read to be fixed.
	{head: "PROBLEM", value: func(b server.Problem, _ view) string { return plain(b.String()) }},
}

var mountColumns = []column[server.Mount]{
	{head: "NAMESPACE", value: func(m server.Mount, _ view) string { return m.Namespace }},
	{head: "POD", value: func(m server.Mount, _ view) string { return m.Pod }},
	{head: "VOLUME", value: func(m server.Mount, _ view) string { return m.Name }},
	{head: "MODE", value: func(m server.Mount, _ view) string { return string(m.Mode) }},
	{head: "ACCESS", value: func(m server.Mount, _ view) string {
		return cmp.Or(m.Permissions, access(m.ReadOnly))
	}},
	{head: "PROPAGATION", value: func(m server.Mount, _ view) string { return orNone(m.Propagation) }},
	{head: "HOST PATH", value: func(m server.Mount, _ view) string { return m.HostPath }},
	{head: "SOURCE", wide: true, value: func(m server.Mount, _ view) string { return orNone(m.SpecName) }},
	{head: "DRIVER", wide: true, value: func(m server.Mount, _ view) string { return orNone(string(m.Driver)) }},
	{head: "NOTE", wide: true, value: func(m server.Mount, _ view) string { return orNone(m.Note) }},
}

#!/bin/sh
# Prints docs/reference/cli.md: the help of each verb and of each subcommand.
set -eu
bin=$1

page() { # title, then the command
	printf '\n## %s\n\n```text\n' "$1"
	shift
	"$bin" "$@" --help
	printf '```\n'
}

cat <<'END'
# The command line

Printed by the program itself (`make docs`); `make docs-test` compares. Kinds may be singular, plural or short: pod, pods,
po; volume, vol; pvc, claim; and `KIND/NAME` is the same as `KIND NAME`. No verb but run and local-driver needs more than
the socket. Colours and live lines appear on a terminal only; `NO_COLOR` set to anything ends the colours.

Every verb that shows something has `-o`: `table` for people and `wide` for all of it, `json` and `yaml` for programs, by
the names of [openapi.yaml](openapi.yaml), and `jsonpath=TEMPLATE` for some fields of those. `--watch` is of what the daemon
tells changes of: pods, volumes, drivers, pv and pvc.
END

pages() { # the words of a command: its page, then those of its subcommands
	page "csi-volmgr${1+ $*}" "$@"
	"$bin" "$@" --help |
		awk '/^Available Commands:/ {on = 1; next} /^$/ {on = 0} on && $1 != "help" && $1 != "completion" {print $1}' |
		while read -r verb; do pages "$@" "$verb"; done
}
pages
page "csi-volmgr completion" completion # the texts below it are cobra's

#!/bin/sh
# Writes a manual page for csi-volmgr, each of its verbs and each subcommand from
# its --help: man.sh PROGRAM DIRECTORY
set -eu
bin=$1 dir=$2
mkdir -p "$dir"

page() { # name of the page, its first line, then the command
	name=$1 short=$2
	shift 2
	{
		printf '.TH %s 1\n.SH NAME\n%s \\- %s\n' "$(echo "$name" | tr a-z A-Z)" "$name" "$short"
		# The text before "Usage:" is the description; each part after it
		# begins with a line that ends in a colon.
		"$bin" "$@" --help | sed 's/\\/\\e/g; s/-/\\-/g' | awk '
			BEGIN { print ".SH DESCRIPTION" }
			/^[A-Z][A-Za-z ]*:$/ && ($1 == "Usage:" || seen) {
				seen = 1; if (open) print ".fi"; open = 1
				sub(/:$/, ""); print ".SH " toupper($0) "\n.nf"; next
			}
			/^$/ && !open { print ".PP"; next }
			{ if ($0 ~ /^[.\x27]/) $0 = "\\&" $0; if (!open && $0 ~ /^ /) print ".br"; print }
			END { if (open) print ".fi" }'
		[ "$name" = csi-volmgr ] || printf '.SH SEE ALSO\n.BR csi\\-volmgr (1)\n'
	} >"$dir/$name.1"
}

pages() { # the first line of a command's page, then the command's words: its page and those of its subcommands
	short=$1
	shift
	page "$(echo csi-volmgr "$@" | tr ' ' -)" "$short" "$@"
	"$bin" "$@" --help |
		awk '/^Available Commands:/ {on = 1; next} /^$/ {on = 0} on && $1 != "help"' |
		while read -r verb short; do
			[ "${1-}" = completion ] || pages "$short" "$@" "$verb"
		done
}
pages "volumes of pods, without a kubelet"
